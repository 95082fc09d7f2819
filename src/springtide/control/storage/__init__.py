"""What is kept: the database and its records, the state directory, archives, logs and housekeeping."""
