"""The live platform: takes jobs over HTTP, decides with the simulator's own policies, remembers, and acts."""
