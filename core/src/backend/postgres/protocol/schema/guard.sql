-- Tables of another program, or of another version of Polylatch, are left as they are.
DO $guard$
DECLARE
    found bigint;
BEGIN
    IF to_regclass('{s}.polylatch_schema') IS NOT NULL THEN
        EXECUTE 'SELECT version FROM {s}.polylatch_schema WHERE id = 1' INTO found;
        IF found <> {version} THEN
            RAISE EXCEPTION 'the schema {s} has tables of version %, and this script makes version {version}', found;
        END IF;
    ELSIF to_regclass('{s}.locks') IS NOT NULL OR to_regclass('{s}.leases') IS NOT NULL
        OR to_regclass('{s}.waiters') IS NOT NULL OR to_regclass('{s}.clients') IS NOT NULL
        OR to_regclass('{s}.audit') IS NOT NULL OR to_regclass('{s}.idempotency') IS NOT NULL THEN
        RAISE EXCEPTION 'the schema {s} has tables of another program; name another schema';
    END IF;
END
$guard$;
