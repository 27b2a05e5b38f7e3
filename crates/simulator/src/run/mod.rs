//! Executes a program: engines, queues, and who waits for whom.
