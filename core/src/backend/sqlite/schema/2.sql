-- What people at a stuck lock want to know besides. NULL: a program of the first version wrote it.

-- Length of the first lease: shorter than `lease_ms` if its client means to renew it.
ALTER TABLE lease ADD COLUMN first_ms INTEGER;

-- The namespace in which `pid` counts.
ALTER TABLE client ADD COLUMN pid_namespace TEXT;
