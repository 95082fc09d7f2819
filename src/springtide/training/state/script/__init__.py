"""What a script itself holds: its variables, objects, generators and loose buffers; kept, or refused."""
