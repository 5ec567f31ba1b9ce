"""ThunderAgent's scheduler (`--router tr`): programs are paused and resumed by a tick, under a token budget per replica.

What it calls a program is a session here, a backend is a replica, paused is being in the waiting pool. `policy` is the
tick; `resuming` and `pausing` are its two halves; `idleness` says what an idle program still weighs; `shadows` are the
programs it keeps on its books although they are gone.
"""
