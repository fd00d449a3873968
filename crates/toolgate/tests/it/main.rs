//! The house from outside: transcripts, sockets, hostile peers, and the walls themselves.
