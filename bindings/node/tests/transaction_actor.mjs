// A client in a process of its own that is killed inside its transaction: node transaction_actor.mjs DRIVER URL FORM KEY.

import mysql from 'mysql2/promise';
import pg from 'pg';

import { TransactionRuns } from 'polylatch';

const [driver, url, form, key] = process.argv.slice(2);
let connection;
if (driver === 'pg') {
  connection = new pg.Client(url);
  await connection.connect();
} else {
  connection = await mysql.createConnection(url);
}
const runs = new TransactionRuns({ dialect: driver === 'pg' ? 'postgres $1' : 'mysql ?' });
const effect = () => connection.query(`INSERT INTO effects VALUES ('${key}')`);

if (form === 'run') {
  await connection.query('BEGIN');
  await runs.run(connection, 'orders/7', key, effect);
} else {
  const steps = runs.steps('orders/7', key, { lease: 500 });
  await connection.query('BEGIN');
  let attempt = await steps.claim(connection);
  await connection.query('COMMIT');
  await connection.query('BEGIN');
  await effect();
  attempt = await attempt.step(connection, 'charge', { receipt: 7 });
  await connection.query('COMMIT');
  await connection.query('BEGIN');
  await effect();
  await attempt.step(connection, 'send');
}
console.log('before the commit');
// Until it is killed.
setInterval(() => {}, 1_000);
