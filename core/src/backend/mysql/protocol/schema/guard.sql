-- Tables of another program, or of another version of Polylatch, are left as they are: a statement whose text says why
-- fails before any table is made.
SET @polylatch_foreign = (SELECT COUNT(*) FROM information_schema.tables t WHERE t.table_schema = DATABASE()
    AND ({foreign}));
SET @polylatch_check = IF(@polylatch_foreign > 0,
    'SELECT `tables of another program are here; use another database`', 'DO 0');
PREPARE polylatch_check FROM @polylatch_check;
EXECUTE polylatch_check;

SET @polylatch_version = {version};
SET @polylatch_check = IF((SELECT COUNT(*) FROM information_schema.tables t WHERE t.table_schema = DATABASE()
    AND t.table_name = 'polylatch_schema') > 0,
    'SET @polylatch_version = (SELECT MAX(version) FROM polylatch_schema WHERE id = 1)', 'DO 0');
PREPARE polylatch_check FROM @polylatch_check;
EXECUTE polylatch_check;
SET @polylatch_check = IF(@polylatch_version <> {version},
    'SELECT `tables of another version are here; use that Polylatch`', 'DO 0');
PREPARE polylatch_check FROM @polylatch_check;
EXECUTE polylatch_check;
DEALLOCATE PREPARE polylatch_check;
