"""Folders in which runs may work: each thread has a copy, and a proposal brings changes back (docs/workspaces.md).

Theory of operation. A *workspace* is a user's folder. A *shadow repository* in the state folder keeps every version
that matters as a commit: the folder as it was when the copy was made (the base), the copy as it was when it was
proposed (the target), the folder when the proposal is applied. So the difference, the three-way merge and the undo
are git's, and the user's own repository lends its objects and is never written.

Two rules keep the programs in a copy from reaching beyond it. Files are opened relative to a descriptor of their
folder, one component at a time, and no link is followed (`paths`). git runs with a configuration of ours only, in no
repository that a program in the copy can write (`git`).
"""
