"""What machines there are, what others take of them, and what becomes of jobs where they come and go."""
