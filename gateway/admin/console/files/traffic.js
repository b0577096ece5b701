// Rates and latencies of the last seconds, computed from the counts that the gateway sends.

const WINDOW = 10; // seconds
const KEPT = 60; // number of points of a line in the overview
const SEPARATOR = "\u0000";

export const keyOf = (...names) => names.join(SEPARATOR);

class Sum {
  constructor(buckets) {
    this.requests = 0; // in the window
    this.errors = 0; // errors of servers
    this.rejected = 0; // errors that callers caused
    this.total = 0; // since the gateway's start
    this.totalErrors = 0;
    this.totalRejected = 0;
    this.latencies = new Float64Array(buckets);
    this.seconds = 0;
    this.bounds = [];
  }

  add(change) {
    this.requests += change.requests;
    this.errors += change.errors;
    this.rejected += change.rejected;
    this.total += change.total;
    this.totalErrors += change.totalErrors;
    this.totalRejected += change.totalRejected;
    for (const [at, count] of change.latencies) this.latencies[at] += count;
  }

  get rate() {
    return this.seconds ? this.requests / this.seconds : null;
  }

  get errorRate() {
    return this.seconds ? this.errors / this.seconds : null;
  }

  /** An estimate of a quantile in seconds: a value within its bucket. Null without requests. */
  quantile(part) {
    let wanted = part * this.latencies.reduce((a, b) => a + b, 0);
    if (!wanted) return null;
    for (const [at, count] of this.latencies.entries()) {
      if (count && wanted <= count) {
        const upper = this.bounds[Math.min(at, this.bounds.length - 1)];
        const lower = at === 0 ? upper / 1.585 : this.bounds[at - 1];
        return at >= this.bounds.length ? upper : lower * (upper / lower) ** (wanted / count);
      }
      wanted -= count;
    }
    return null;
  }
}

const total = (byStatus) => Object.values(byStatus).reduce((a, b) => a + b, 0);

export class Traffic {
  constructor() {
    this.started = null;
    this.now = null; // the last complete reply
    this.time = 0;
    this.clear();
  }

  clear() {
    this.paths = new Map();
    this.first = null;
    this.history = [];
    this.groups = null;
  }

  /** Process a reply of /api/traffic. `time`: its gateway-time. `changed`: false if it equals the previous reply. */
  take(reply, time, changed, bounds) {
    if (reply.started !== this.started) {
      this.clear();
      this.started = reply.started;
    }
    const isFirst = this.first === null;
    if (isFirst) this.first = time;
    const isLate = !isFirst && time - this.time > WINDOW; // the page was hidden, or the gateway was unreachable
    if (changed || isFirst) for (const path of reply.paths) this.#sample(path, isFirst ? time : this.time, time);
    if (isLate) this.#beginAgain(time);
    this.now = reply;
    this.time = time;
    this.#group(bounds);
  }

  #sample(path, before, time) {
    const key = keyOf(path.listener, path.route, path.backend, path.endpoint);
    const sample = { time, ok: path.ok, errors: total(path.failed), rejected: total(path.rejected), latencies: path.latencies };
    const known = this.paths.get(key);
    if (known) known.samples.push(sample);
    else {
      // an object that is new in this reply started at 0; an object in the first reply has unknown earlier counts
      const samples = before === time ? [sample] : [{ time: before, ok: 0, errors: 0, rejected: 0, latencies: {} }, sample];
      this.paths.set(key, { path, samples });
    }
  }

  /** Compute rates only from now on, because the distribution of the requests since the last reply is unknown. */
  #beginAgain(time) {
    this.first = time;
    this.history = [];
    for (const each of this.paths.values()) each.samples = [{ ...each.samples.at(-1), time }];
  }

  #change({ samples }) {
    const from = this.time - WINDOW;
    while (samples.length > 1 && samples[1].time <= from) samples.shift();
    const base = samples[0];
    const last = samples[samples.length - 1];
    const latencies = [];
    if (last !== base) {
      for (const [at, count] of Object.entries(last.latencies)) {
        const grown = count - (base.latencies[at] ?? 0);
        if (grown) latencies.push([Number(at), grown]);
      }
    }
    const errors = last.errors - base.errors;
    const rejected = last.rejected - base.rejected;
    return {
      requests: last.ok - base.ok + errors + rejected,
      errors,
      rejected,
      total: last.ok + last.errors + last.rejected,
      totalErrors: last.errors,
      totalRejected: last.rejected,
      latencies,
    };
  }

  #group(bounds) {
    const seconds = Math.min(WINDOW, this.time - this.first);
    const sum = () => Object.assign(new Sum(bounds.length + 1), { seconds, bounds });
    const groups = { all: sum() };
    for (const name of ["listeners", "routes", "backends", "endpoints", "edges"]) groups[name] = new Map();
    const into = (group, key) => {
      if (!groups[group].has(key)) groups[group].set(key, sum());
      return groups[group].get(key);
    };
    for (const each of this.paths.values()) {
      const { listener, route, backend, endpoint } = each.path;
      const change = this.#change(each);
      if (listener) { // otherwise it is a step of the graph at this route; steps have their own counts
        groups.all.add(change);
        into("listeners", listener).add(change);
        if (!route) continue;
        into("routes", route).add(change);
        into("edges", keyOf(listener, route)).add(change);
      }
      if (!backend) continue;
      into("backends", backend).add(change);
      into("edges", keyOf(route, backend)).add(change);
      if (!endpoint) continue;
      into("endpoints", keyOf(backend, endpoint)).add(change);
      into("edges", keyOf(route, backend, endpoint)).add(change);
    }
    this.groups = groups;
    this.nothing = sum();
    this.history = [...this.history, this.#point(groups.all)].slice(-KEPT);
  }

  #point(all) {
    return {
      time: this.time,
      rate: all.rate,
      errors: all.errorRate,
      median: all.quantile(0.5),
      slow: all.quantile(0.99),
      inFlight: this.inFlight(),
      waiting: this.waiting(),
    };
  }

  inFlight() {
    return Object.values(this.now.listeners).reduce((sum, each) => sum + each.in_flight, 0);
  }

  waiting() {
    return Object.values(this.now.backends).reduce((sum, each) => sum + each.waiting, 0);
  }

  of(group, key) {
    return this.groups?.[group].get(key) ?? this.nothing;
  }
}
