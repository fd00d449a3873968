//! What a program is called with, and how it ends.
