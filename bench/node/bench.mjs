// Measures BullMQ on a Valkey server: `node bench.mjs '{"do": "drain", "port": 6379, "jobs": 1000}'`. Prints one JSON object of
// sample lists by name.
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';

const asked = JSON.parse(process.argv[2]);
const name = 'bench';
const connection = { host: '127.0.0.1', port: asked.port, maxRetriesPerRequest: null };
const data = '01234567890123456789012'; // 25 bytes as JSON
const queue = new Queue(name, { connection, defaultJobOptions: { removeOnComplete: true } });
const limiter = asked.limited ? { max: 1e9, duration: 3600e3 } : undefined;

const now = () => performance.timeOrigin + performance.now();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const perSecond = (began) => asked.jobs / ((performance.now() - began) / 1000);

// bulk enqueues all jobs, a thousand a call.
async function bulk() {
  const began = performance.now();
  for (let left = asked.jobs; left > 0; left -= 1000) {
    await queue.addBulk(Array.from({ length: Math.min(left, 1000) }, () => ({ name: 'x', data })));
  }
  return { bulk: [perSecond(began)] };
}

// single enqueues all jobs, one a call, 16 calls at a time.
async function single() {
  const began = performance.now();
  let left = asked.jobs;
  await Promise.all(Array.from({ length: 16 }, async () => {
    while (left-- > 0) await queue.add('x', data);
  }));
  return { single: [perSecond(began)] };
}

// drain enqueues all jobs in bulk and works them off with one worker, from its start to the last 'completed'.
async function drain() {
  await bulk();
  let done = 0;
  const began = performance.now();
  const worker = new Worker(name, async () => {}, { connection, concurrency: asked.concurrency, limiter });
  await new Promise((resolve, reject) => {
    worker.on('completed', () => { if (++done === asked.jobs) resolve(); });
    worker.on('failed', (_, error) => reject(error));
  });
  const drained = [perSecond(began)];
  await worker.close();
  return { drain: drained };
}

// started makes an idle worker whose handler passes each start on.
async function started(concurrency) {
  let waiting;
  const starts = [];
  const worker = new Worker(name, async (job) => {
    starts.push([job, now()]);
    waiting?.();
  }, { connection, concurrency });
  await worker.waitUntilReady();
  await sleep(200);
  const next = async () => {
    while (starts.length === 0) await new Promise((resolve) => { waiting = resolve; });
    return starts.shift();
  };
  return { worker, next };
}

// pickup enqueues one job at a time to an idle worker.
async function pickup() {
  const { worker, next } = await started(asked.concurrency);
  const took = [];
  for (let i = 0; i < asked.jobs; i++) {
    await sleep(3 + Math.random() * 8);
    const began = now();
    await queue.add('x', data);
    const [, at] = await next();
    took.push(at - began);
  }
  await worker.close();
  return { pickup: took };
}

// delayed enqueues jobs of random delays and tells how late they start.
async function delayed() {
  const { worker, next } = await started(asked.concurrency);
  const late = [];
  const all = (async () => {
    for (let i = 0; i < asked.jobs; i++) {
      const [job, at] = await next();
      late.push(at - (job.timestamp + job.opts.delay));
    }
  })();
  for (let i = 0; i < asked.jobs; i++) {
    await queue.add('x', data, { delay: 50 + Math.floor(Math.random() * 451) });
    await sleep(5);
  }
  await all;
  await worker.close();
  return { delayed: late };
}

// fleet lets one-slot workers that share a limit of 5 a second idle on a backlog, and counts the scripts of a span for each job.
async function fleet() {
  await bulk();
  let done = 0;
  const workers = Array.from({ length: asked.workers }, () =>
    new Worker(name, async () => { done++; }, { connection, concurrency: 1, limiter: { max: 5, duration: 1000 } }));
  await Promise.all(workers.map((w) => w.waitUntilReady()));
  const client = new Redis(connection);
  const count = async () => {
    const stats = await client.info('commandstats');
    const calls = [...stats.matchAll(/cmdstat_(?:evalsha|evalsha_ro|eval|eval_ro|fcall|fcall_ro):calls=(\d+)/g)];
    return { scripts: calls.reduce((sum, m) => sum + Number(m[1]), 0), done };
  };
  await sleep(3000);
  const before = await count();
  await sleep(asked.seconds * 1000);
  const after = await count();
  process.stdout.write(JSON.stringify({ scripts: [(after.scripts - before.scripts) / (after.done - before.done)] }), () => process.exit(0));
  await new Promise(() => {});
}

const measure = { bulk, single, drain, pickup, delayed, fleet }[asked.do];
const got = await measure();
await queue.close();
process.stdout.write(JSON.stringify(got), () => process.exit(0));
