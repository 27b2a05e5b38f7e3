//! An independent proof that a memory plan is sound, written from the definitions
