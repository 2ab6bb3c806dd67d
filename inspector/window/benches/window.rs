//! What the window costs with many locks: `cargo bench -p polylatch-inspector`.
//!
//! Starts a Redis of its own and a process that holds 10 000 locks and changes 1 000 of them a second,
//! then draws frames without a screen, thirty a second, and prints times and memory. At the end the
//! changes stop, and frames are drawn only when the window asks for them. The cost of painting is the
//! graphics driver's and not in it. `POLYLATCH_BENCH_LOCKS`, `_CHANGES` and `_SECONDS` change what is
//! drawn; with the usual numbers, a figure that is over its budget makes this fail.

#[cfg(not(unix))]
fn main() {
    println!("needs a Unix system");
}

#[cfg(unix)]
fn main() {
    bench::main();
}

#[cfg(unix)]
mod bench {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use eframe::egui::{self, Pos2, RawInput, Rect, vec2};
    use polylatch::Polylatch;
    use polylatch_inspector::{App, Args, Settings};
    use polylatch_test_services::TempDir;
    use polylatch_test_services::redis::RedisServer;

    const FRAME: Duration = Duration::from_millis(33);

    /// So long that renewals are a small part of what happens.
    const LEASE: Duration = Duration::from_secs(600);

    /// What there may be at most, each beside its figure.
    #[derive(Default)]
    struct Budgets {
        over: Vec<String>,
    }

    impl Budgets {
        fn check(&mut self, what: &str, figure: f64, most: f64, unit: &str) {
            if figure > most {
                self.over.push(format!("{what}: {figure:.1} {unit}, at most {most} {unit}"));
            }
        }
    }

    fn number(name: &str, otherwise: usize) -> usize {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    }

    pub fn main() {
        if std::env::var_os("POLYLATCH_BENCH_WORKLOAD").is_some() {
            return workload();
        }
        let locks = number("POLYLATCH_BENCH_LOCKS", 10_000);
        let changes = number("POLYLATCH_BENCH_CHANGES", 1_000);
        let seconds = number("POLYLATCH_BENCH_SECONDS", 30) as u64;
        let redis = RedisServer::start();
        let mut load = Load::start(&redis.url(), locks, changes);
        println!("{locks} locks on Redis, {changes} of them released and taken again each second");
        println!("frames without a screen, 1280 x 800, {seconds} s after the first overview");

        let mut budgets = Budgets::default();
        let mut window = Window::open(&redis.url());
        let begun = Instant::now();
        while window.app.shown().1 < locks * 9 / 10 && begun.elapsed() < Duration::from_secs(60) {
            window.frame();
        }
        let first_picture = millis(begun.elapsed());
        println!("first overview        {first_picture:>8.0} ms after the start");
        budgets.check("first overview", first_picture, 1_000.0, "ms");
        let first = memory_mib();
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut changes_seen = Vec::new();
        let mut probe = Probe::new(&redis.url());
        window.app.set_filter("lock:probe");
        while window.app.shown().0 > 0 {
            window.frame();
        }
        while Instant::now() < end {
            changes_seen.push(probe.change(&mut window));
        }
        window.app.set_filter("");
        let (middle, quiet) = (memory_mib(), Instant::now() + Duration::from_secs(seconds / 2));
        window.times.clear();
        window.shapes.clear();
        while Instant::now() < quiet {
            window.frame();
        }
        let last = memory_mib();
        let (median, high) = report("UI code of a frame", &mut window.times);
        budgets.check("UI code of a frame, median", median, 2.0, "ms");
        budgets.check("UI code of a frame, p99", high, 16.0, "ms");
        report("of it making shapes", &mut window.shapes);
        let (median, _) = report("change until shown", &mut changes_seen);
        budgets.check("change until shown, median", median, 300.0, "ms");
        println!("memory               {first:>8.0} MiB at first, {middle:.0} MiB, {last:.0} MiB at the end");
        budgets.check("memory", last, 250.0, "MiB");
        budgets.check("growth of memory in the last third", last - middle, 16.0, "MiB");
        for cost in window.app.costs() {
            println!(
                "snapshot              {:>8.1} ms each, every {} ms, {:.0} requests/s",
                cost.reading_ms, cost.every_ms, cost.requests_per_sec
            );
            budgets.check("requests", cost.requests_per_sec, 3_000.0, "/s");
        }
        load.calm();
        // They would count down in sight.
        drop(probe);
        window.rest(Duration::from_secs(5));
        let (before, calm) = (processor_secs(), Duration::from_secs(10));
        let frames = window.rest(calm);
        let share = 100.0 * (processor_secs() - before) / calm.as_secs_f64();
        println!("while nothing changes{share:>8.1} % of a core, {frames} frames in 10 s");
        budgets.check("while nothing changes", share, 3.0, "% of a core");
        load.end();
        let usual = (locks, changes) == (10_000, 1_000);
        budgets.over.iter().for_each(|over| println!("over budget: {over}"));
        if usual && !budgets.over.is_empty() {
            std::process::exit(1);
        }
    }

    /// What this process has used of the processors so far.
    fn processor_secs() -> f64 {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Fields behind the name, which may have blanks; user and system time in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / 100.0
    }

    fn millis(time: Duration) -> f64 {
        time.as_secs_f64() * 1_000.0
    }

    fn report(what: &str, times: &mut [Duration]) -> (f64, f64) {
        times.sort();
        let at =
            |part: f64| times.get(((times.len() as f64 - 1.0) * part) as usize).copied().unwrap_or_default();
        let (median, high) = (millis(at(0.5)), millis(at(0.99)));
        println!("{what:<20} {median:>8.2} ms median, {high:.2} ms p99, {} times", times.len());
        (median, high)
    }

    fn memory_mib() -> f64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    }

    /// The application without a screen.
    struct Window {
        app: App,
        ctx: egui::Context,
        started: Instant,
        times: Vec<Duration>,
        shapes: Vec<Duration>,
        _dir: TempDir,
    }

    impl Window {
        fn open(url: &str) -> Self {
            let dir = TempDir::new();
            let args =
                Args { url: vec![url.to_owned()], settings: Some(dir.join("settings")), ..Args::default() };
            let mut app = App::new(Settings::default(), None, args).expect("the arguments are good");
            let ctx = egui::Context::default();
            app.attach(&ctx);
            Self { app, ctx, started: Instant::now(), times: Vec::new(), shapes: Vec::new(), _dir: dir }
        }

        /// Draws only what is asked for, for some time. Returns how many frames that were.
        fn rest(&mut self, time: Duration) -> usize {
            let end = Instant::now() + time;
            let due = Arc::new(Mutex::new(Instant::now()));
            let asked = Arc::clone(&due);
            let later = move |info: egui::RequestRepaintInfo| {
                let mut due = asked.lock().unwrap_or_else(PoisonError::into_inner);
                *due = (*due).min(Instant::now() + info.delay.min(Duration::from_secs(60)));
            };
            self.ctx.set_request_repaint_callback(later);
            let mut frames = 0;
            while Instant::now() < end {
                let at = *due.lock().unwrap_or_else(PoisonError::into_inner);
                let wait = at.saturating_duration_since(Instant::now());
                if wait.is_zero() {
                    *due.lock().unwrap_or_else(PoisonError::into_inner) = end;
                    self.frame();
                    frames += 1;
                } else {
                    std::thread::sleep(wait.min(FRAME));
                }
            }
            frames
        }

        fn frame(&mut self) {
            let begun = Instant::now();
            let input = RawInput {
                screen_rect: Some(Rect::from_min_size(Pos2::ZERO, vec2(1280.0, 800.0))),
                time: Some(self.started.elapsed().as_secs_f64()),
                focused: true,
                ..RawInput::default()
            };
            self.app.logic(&self.ctx);
            let mut output = self.ctx.run_ui(input, |ui| self.app.ui(ui));
            self.times.push(begun.elapsed());
            let shaping = Instant::now();
            let shapes = self.ctx.tessellate(output.shapes, output.pixels_per_point);
            self.shapes.push(shaping.elapsed());
            drop(shapes);
            output.textures_delta.clear();
            std::thread::sleep(FRAME.saturating_sub(begun.elapsed()));
        }
    }

    /// Takes one lock after the other, and looks when the window shows it.
    struct Probe {
        runtime: tokio::runtime::Runtime,
        client: Polylatch,
        guards: Vec<polylatch::Guard>,
    }

    impl Probe {
        fn new(url: &str) -> Self {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let client = runtime.block_on(Polylatch::connect(url)).expect("the server answers");
            Self { runtime, client, guards: Vec::new() }
        }

        fn change(&mut self, window: &mut Window) -> Duration {
            let lock = self.client.lock(format!("probe/{}", self.guards.len()));
            self.guards.push(self.runtime.block_on(lock.acquire()).expect("acquired"));
            let begun = Instant::now();
            while window.app.shown().0 < self.guards.len() {
                window.frame();
            }
            begun.elapsed()
        }
    }

    /// The process that holds the locks.
    struct Load(Child);

    impl Load {
        fn start(url: &str, locks: usize, changes: usize) -> Self {
            let program = std::env::current_exe().expect("this program has a path");
            let mut command = Command::new(program);
            command.env("POLYLATCH_BENCH_WORKLOAD", format!("{locks} {changes}")).env("POLYLATCH_URL", url);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
            let mut line = String::new();
            let output = child.stdout.take().expect("piped");
            BufReader::new(output).read_line(&mut line).expect("it says when it is ready");
            assert_eq!(line.trim(), "ready");
            Self(child)
        }

        /// Lets it only hold what it holds.
        fn calm(&mut self) {
            if let Some(input) = &mut self.0.stdin {
                let _ = input.write_all(b"!");
            }
        }

        fn end(&mut self) {
            drop(self.0.stdin.take());
            let _ = self.0.wait();
        }
    }

    impl Drop for Load {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn workload() {
        let numbers = std::env::var("POLYLATCH_BENCH_WORKLOAD").unwrap_or_default();
        let mut numbers = numbers.split(' ').map(|text| text.parse::<usize>().expect("a number"));
        let (locks, changes) = (numbers.next().expect("locks"), numbers.next().expect("changes"));
        let calm = Arc::<AtomicBool>::default();
        let told = Arc::clone(&calm);
        std::thread::spawn(move || {
            while matches!(std::io::stdin().read(&mut [0]), Ok(1)) {
                told.store(true, Ordering::Relaxed);
            }
            std::process::exit(0);
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let client = Polylatch::builder().program("load").connect().await.expect("the server answers");
            let mut guards = Vec::with_capacity(locks);
            for at in 0..locks {
                let lock = client.lock(name(at)).label("load").lease(LEASE);
                guards.push(Some(lock.acquire().await.expect("acquired")));
            }
            println!("ready");
            let done = Arc::new(AtomicUsize::new(0));
            let begun = Instant::now();
            for at in (0..locks).cycle() {
                let due = Duration::from_secs_f64(
                    done.fetch_add(1, Ordering::Relaxed) as f64 / changes.max(1) as f64,
                );
                tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
                while calm.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                if let Some(guard) = guards[at].take() {
                    let _ = guard.release().await;
                }
                let lock = client.lock(name(at)).label("load").lease(LEASE);
                guards[at] = lock.acquire().await.ok();
            }
        });
    }

    fn name(at: usize) -> String {
        format!("shop/{}/order/{at}", at % 37)
    }
}
