// The sentences of conversations, in English and in Chinese; words.js has all others.

const en = {
  "talk.title": "Conversation",
  "talk.open": "Conversation",
  "talk.loading": "Reading the messages…",
  "talk.failed": ({ message }) => `The messages cannot be read: ${message}`,
  "talk.none": "Nothing has been said yet.",
  "talk.earlier": "Show earlier messages",
  "talk.works": ({ n }) => (n === "1" ? "A run is not finished:" : `${n} runs are not finished:`),
  "talk.run": "Run",
  "talk.user": "Person",
  "talk.assistant": "Agent",
  "talk.tool": "Result",
  "talk.system": "Note",
  "talk.task": "Background task",
  "talk.excerpt": "This message is too long to be shown whole: its middle is left out.",
};

const zh = {
  "talk.title": "对话",
  "talk.open": "对话",
  "talk.loading": "正在读取消息…",
  "talk.failed": ({ message }) => `无法读取消息：${message}`,
  "talk.none": "还没有任何消息。",
  "talk.earlier": "显示更早的消息",
  "talk.works": ({ n }) => `${n} 个运行正在工作或等待：`,
  "talk.run": "运行",
  "talk.user": "用户",
  "talk.assistant": "智能体",
  "talk.tool": "结果",
  "talk.system": "备注",
  "talk.task": "后台任务",
  "talk.excerpt": "此消息过长，中间部分已省略。",
};

export const TALK = { en, zh };
