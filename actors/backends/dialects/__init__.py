"""The dialects of programs: each turns the bytes of one program into items, and answers into bytes."""
