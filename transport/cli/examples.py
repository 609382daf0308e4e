"""The examples at the end of `--help`."""

from __future__ import annotations

from typing import Final

EXAMPLES: Final = {
    "": """\
examples:
  greenroom demo                             an example agent, offline; asks before it writes its report
  greenroom run support.py:agent "refund order 7" --db support.db
  greenroom runs --db support.db             all runs, newest first
  greenroom show RUN_ID --db support.db      one run from start to end
  greenroom serve support.py:agent --db support.db      a gateway with a console; from other terminals:
  greenroom follow RUN_ID --db support.db    a run live
  greenroom approve RUN_ID --db support.db   approve a call (also deny, cancel, pause, send)
""",
    "run": """\
examples:
  greenroom run support.py:agent "refund order 7"                    in memory; questions appear here
  greenroom run support.py:agent "refund order 7" --db support.db    durable: Ctrl-C, then --resume
  greenroom run support.py:agent --db support.db --resume run_4f1c   continues a run, also after a crash
  greenroom run support.py:agent "refund order 7" --yes --json       for scripts: one event per line, then the outcome
  greenroom run support.py:agent "..." --secret-env DB_PASSWORD      the value of the variable is hidden in all output
  greenroom run support.py:agent "..." --model anthropic:claude-sonnet-4-5      another model (docs/models.md)
""",
    "demo": """\
examples:
  greenroom demo                        the files of the current folder
  greenroom demo ~/project --yes        another folder; writes the report without asking
  greenroom demo --resume               continues the newest unfinished run
  greenroom demo --model openai:qwen3 --base-url http://127.0.0.1:8080/v1      a real model in place of the function
""",
    "runs": """\
examples:
  greenroom runs                                    runs of the demo
  greenroom runs --db support.db --status waiting   waiting runs, the longest wait first
  greenroom runs --db support.db --agent support --since 2d --text "order 7"
  greenroom runs --db support.db --json             one JSON object per line
  greenroom runs --store service=runs               runs of a shared store
  greenroom runs revive run_4f1c --store service=runs      lets a dead letter be claimed again
""",
    "show": """\
examples:
  greenroom show run_4f1c --db support.db             a prefix of an id that no other run shares
  greenroom show run_4f1c --db support.db --events    every event
  greenroom show run_4f1c --db support.db --json --events
""",
    "replay": """\
examples:
  greenroom replay run_4f1c --db support.db --agent support.py          compares every event with the stored one
  greenroom replay run_4f1c --db support.db --agent support.py --step   input by input: state before, effects, events
  greenroom replay run_4f1c --db support.db --agent new.py:support      finds the first event that another agent changes
""",
    "prune": """\
examples:
  greenroom prune --older-than 30d --db support.db --dry-run    reports what would be deleted
  greenroom prune --older-than 30d --db support.db
""",
    "serve": """\
examples:
  greenroom serve support.py:agent --db support.db              http://127.0.0.1:8765, token in support.db.token
  greenroom serve support.py billing.py:agent --db all.db       several agents
  greenroom serve support.py --port 0                           a free port; runs in memory
  greenroom serve support.py --store service=runs --workers 4   four processes on one PostgreSQL database
  greenroom serve --store service=runs                          a gateway for the runs of other processes
  greenroom serve support.py --db s.db --host 0.0.0.0 --host-name runs.example.org --token-file /run/secrets/token
""",
    "follow": """\
examples:
  greenroom follow run_4f1c --db support.db                     finds the server of the database by the lock file
  greenroom follow run_4f1c --db support.db --after 17 --json   one event per line, from 18 on
  greenroom follow run_4f1c --url http://runs.example.org:8765 --token-file token
""",
    "approve": """\
examples:
  greenroom approve run_4f1c --db support.db                    shows the call, then asks
  greenroom approve run_4f1c t2 --db support.db --yes           a named ticket, without asking
  greenroom approve run_4f1c --edit '{"order": "7", "cents": 400}' --reason "not all of it"
  greenroom approve run_4f1c --result '"blue"'                  the answer to a question
""",
    "deny": """\
examples:
  greenroom deny run_4f1c --db support.db --reason "ask the customer first"
  greenroom deny run_4f1c --db support.db --all
  greenroom deny run_4f1c --db support.db --reason "spends too much" --text "Do not try again; ask the customer."
""",
    "cancel": """\
examples:
  greenroom cancel run_4f1c --db support.db --reason "no longer needed"
  greenroom cancel run_4f1c --db support.db --after-step        after the current step
""",
    "pause": """\
examples:
  greenroom pause run_4f1c --db support.db --reason "the shop is closed"
  greenroom approve run_4f1c --db support.db --result '"The shop is open again."'   continues the run with this text
""",
    "send": """\
examples:
  greenroom send run_4f1c "It was order 8, sorry." --db support.db
""",
    "queues": """\
examples:
  greenroom queues list --store service=runs             length, work and oldest run of each queue
  greenroom queues limit mails 5 --store service=runs    at most 5 runs of the queue work at once, over all processes
  greenroom queues limit mails none --store service=runs
  greenroom queues pause mails --store service=runs      no run of the queue is claimed; working runs continue
  greenroom queues resume mails --store service=runs
""",
    "db": """\
examples:
  greenroom db show --store service=runs       server, schema, rights, replication, processes
  greenroom db migrate --store service=owner   bring the tables to this release, as the role that owns them
  greenroom db level --store service=runs      releases of the processes, and levels of the rows
  greenroom db adopt --store service=copy      put a copy of a database into use
""",
}
"""Command -> examples for its help; the empty name is the program itself."""
