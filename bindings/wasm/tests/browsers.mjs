// Real browsers of three engines, behind the few calls that the tests need of a page.
//
// Chromium and Firefox are driven over WebDriver BiDi and DevTools by puppeteer, WebKit (the engine of Safari, here as
// GTK's) over WebDriver, which is plain HTTP. POLYLATCH_CHROMIUM, POLYLATCH_FIREFOX and POLYLATCH_WEBKIT_DRIVER name
// other programs.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

import puppeteer from 'puppeteer-core';

/** How long a page may take for what a test waits for, in milliseconds. */
const PATIENCE = 20_000;
const VIEW = { width: 640, height: 640 };

/** The engines, each with a function that starts its browser. */
export const ENGINES = { chromium, firefox, webkit };

async function chromium() {
  return driven(
    await puppeteer.launch({
      executablePath: process.env.POLYLATCH_CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox'],
      defaultViewport: VIEW,
    }),
  );
}

async function firefox() {
  return driven(
    await puppeteer.launch({
      browser: 'firefox',
      executablePath: process.env.POLYLATCH_FIREFOX ?? '/usr/bin/firefox-esr',
      defaultViewport: VIEW,
    }),
  );
}

async function driven(browser) {
  return {
    version: await browser.version(),
    async open(url) {
      const page = await browser.newPage();
      const complaints = [];
      page.on('pageerror', (error) => complaints.push(String(error)));
      page.on('console', (message) => {
        // Chromium complains of every status above 399, with which Consul and the tests' server only answer.
        const isStatus = message.text().startsWith('Failed to load resource: the server responded');
        if (message.type() === 'error' && !isStatus) complaints.push(message.text());
      });
      await page.goto(url);
      return {
        complaints,
        read: (source) => page.evaluate(source),
        until: (source) => page.waitForFunction(source, { timeout: PATIENCE }),
        click: (selector) => page.click(selector),
        screenshot: (path) => page.screenshot({ path }),
        close: () => page.close(),
      };
    },
    close: () => browser.close(),
  };
}

/** MiniBrowser stands in a folder whose name has the machine and the library's version. */
function miniBrowser() {
  const folders = readdirSync('/usr/lib').flatMap((machine) =>
    ['webkitgtk-6.0', 'webkit2gtk-4.1', 'webkit2gtk-4.0'].map((version) => `/usr/lib/${machine}/${version}`),
  );
  const found = folders.map((folder) => `${folder}/MiniBrowser`).find(existsSync);
  if (found === undefined) {
    throw new Error('there is no MiniBrowser below /usr/lib; install the package webkit2gtk-driver');
  }
  return found;
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

async function webkit() {
  // It has no mode without windows.
  const screen = spawn('Xvfb', ['-displayfd', '1', '-screen', '0', '1024x800x24', '-nolisten', 'tcp'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [display] = await once(createInterface(screen.stdout), 'line');
  const port = await freePort();
  const driver = spawn(
    process.env.POLYLATCH_WEBKIT_DRIVER ?? 'WebKitWebDriver',
    [`--port=${port}`, '--host=127.0.0.1'],
    { env: { ...process.env, DISPLAY: `:${display}`, GDK_BACKEND: 'x11' }, stdio: 'ignore' },
  );
  const end = () => {
    driver.kill();
    screen.kill();
  };
  try {
    const { sessionId, capabilities } = await session(port, driver);
    const ask = (method, path, body) => command(port, method, `/session/${sessionId}${path}`, body);
    const first = await ask('GET', '/window');
    return {
      version: `WebKitGTK/${capabilities.browserVersion}`,
      open: (url) => openWebKit(ask, first, url),
      async close() {
        await ask('DELETE', '');
        end();
      },
    };
  } catch (error) {
    end();
    throw error;
  }
}

async function session(port, driver) {
  const wanted = {
    timeouts: { script: PATIENCE },
    'webkitgtk:browserOptions': { binary: miniBrowser(), args: ['--automation'] },
  };
  for (;;) {
    try {
      return await command(port, 'POST', '/session', { capabilities: { alwaysMatch: wanted } });
    } catch (error) {
      // It does not say when it listens.
      if (error.cause?.code !== 'ECONNREFUSED' || driver.exitCode !== null) throw error;
      await sleep(20);
    }
  }
}

/** One command of WebDriver (W3C, "WebDriver", section "Endpoints"). */
async function command(port, method, path, body) {
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const { value } = await answer.json();
  if (!answer.ok) throw new Error(`WebKit: ${method} ${path}: ${value.error}: ${value.message}`);
  return value;
}

/** Opens a page in a window of its own; `first` is the one that stays. */
async function openWebKit(ask, first, url) {
  // Not a tab: one in the background has no picture, and asking for it never ends.
  const { handle } = await ask('POST', '/window/new', { type: 'window' });
  await ask('POST', '/window', { handle });
  await ask('POST', '/url', { url });
  return {
    // WebDriver does not tell what a page complains of.
    complaints: [],
    read: (source) => ask('POST', '/execute/sync', { script: `return (${source})`, args: [] }),
    until: (source) =>
      ask('POST', '/execute/async', {
        script: `const done = arguments[0]; (function look() { (${source}) ? done() : setTimeout(look, 20); })();`,
        args: [],
      }),
    async click(selector) {
      const found = await ask('POST', '/element', { using: 'css selector', value: selector });
      await ask('POST', `/element/${Object.values(found)[0]}/click`, {});
    },
    async screenshot(path) {
      await writeFile(path, Buffer.from(await ask('GET', '/screenshot'), 'base64'));
    },
    async close() {
      await ask('DELETE', '/window');
      // Commands go to a window, and this one is no more.
      await ask('POST', '/window', { handle: first });
    },
  };
}
