"""One callable in, one measurement out: time, memory, exactness and the kernel that ran. Imports torch; worker only."""
