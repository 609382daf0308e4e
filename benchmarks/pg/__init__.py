"""Scripts that each measure one library on a PostgreSQL server: ours, and peers in environments of their own."""
