"""The database below the store: addresses and engines, tables, rows, migrations, checks."""
