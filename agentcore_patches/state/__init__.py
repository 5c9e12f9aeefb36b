"""Write into an install: all of a change, or nothing of it.

    .agentcore-patch/
        lock            held (flock) by the command that is at work
        state.json      which patches are in place, and what each file was before them
        store/<sha256>  the texts that state.json and the journal refer to
        prepared.json   journal of a change that is undone if its command is killed
        committed.json  the same journal, of a change that is finished in that case
        state.next      the state.json that belongs to the change

`transaction` says what happens, and replaces SGLang's files. A change is prepared in full
first: texts stored, the journal written, each new file written next to its target, all
synced to disk. Renaming `prepared.json` to `committed.json` is the point of no return;
only then are the targets replaced, one rename each. The next command that writes finishes
or undoes a change that it finds, and may itself be killed and repeated.

Nothing that is read from this folder is trusted: it may be somebody else's who can write
into the package.
"""
