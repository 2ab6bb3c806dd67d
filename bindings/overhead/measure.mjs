// What a call costs from JavaScript: `node measure.mjs PACKAGE LANGUAGE URL…`.

const [packageName, language, ...urls] = process.argv.slice(2);
const { connect } = await import(packageName);

async function cycles(client, times) {
  const begun = process.hrtime.bigint();
  for (let cycle = 0; cycle < times; cycle += 1) {
    const guard = await client.lock('measured').acquire();
    await guard.release();
  }
  return (process.hrtime.bigint() - begun) / BigInt(times);
}

for (const url of urls) {
  const client = await connect(url);
  await cycles(client, 2_000);
  const both = await cycles(client, 3_000);
  const guard = await client.lock('measured').acquire();
  for (let call = 0; call < 20_000; call += 1) guard.check();
  const begun = process.hrtime.bigint();
  for (let call = 0; call < 50_000; call += 1) guard.check();
  const check = (process.hrtime.bigint() - begun) / 50_000n;
  await guard.release();
  await client.close();
  console.log(`${language} ${url.split(/[:+]/)[0]} check_ns=${check} acquire_release_ns=${both}`);
}
