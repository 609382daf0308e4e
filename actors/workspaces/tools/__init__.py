"""Tools that work in a worktree: `workspace_tools`."""
