"""EasyScale's cluster scheduling (SC 2023): proposals by jobs, rounds over them, and a look ahead."""
