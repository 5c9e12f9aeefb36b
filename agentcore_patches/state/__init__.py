"""Write into an install: a whole change, or nothing.

    .agentcore-patch/
        lock            held (flock) by the running command
        state.json      the patches in place, and the original of each file
        store/<sha256>  the files that state.json and the journal name
        prepared.json   journal of a change that is undone if its command is killed
        committed.json  the same journal, of a change that is then finished instead
        state.next      the state.json that belongs to the change

`transaction` does the work, and replaces SGLang's files. First, a change is prepared in
full: files stored, the journal written, each new file written next to its target, all
synced to disk. Renaming `prepared.json` to `committed.json` is the point of no return;
only then are the targets replaced, one rename each. The next command that writes finishes
or undoes a change that it finds, and may itself be killed and repeated.

Nothing in this folder is trusted: anyone who can write into the package may have written
it.
"""
