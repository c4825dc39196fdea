// Made-up values, the same at every call.

export function randomOf(seed) {
  let state = (seed * 2654435761) >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

const hash = (text) => [...text].reduce((h, c) => (h * 31 + c.charCodeAt(0)) >>> 0, 7)

export function valueAt(tag, run, step) {
  const noise = randomOf(hash(tag) + hash(run.key) * 17 + step)() + randomOf(hash(tag) + hash(run.key) * 31 + step + 1)() - 1
  const lr = run.config.lr
  const t = step * (0.3 + 30 * lr)
  const own = 1 + (hash(run.key) % 17) / 60
  if (tag === 'lr') return lr * Math.min(1, step / 500) * (0.5 + 0.5 * Math.cos((Math.PI * step) / 15000))
  if (tag === 'odd/nan_and_inf') return step % 700 < 20 && step > 300 ? NaN : step % 1500 === 1200 ? Infinity : step % 1900 === 1500 ? -Infinity : Math.sin(step / 300) + noise * 0.1
  if (tag === 'odd/spikes') return step === 777 ? 100 : noise
  if (tag === 'odd/negative') return -5 - 3 * Math.exp(-t / 900) + noise * 0.2
  if (tag === 'odd/constant') return 42
  if (tag.endsWith('accuracy')) return Math.min(1, 0.98 * (1 - 0.88 * Math.exp((-t / 1500) * own)) + noise * 0.02)
  if (tag.endsWith('perplexity')) return Math.exp(5 * own * Math.exp(-t / 1400) + 1 + noise * 0.03)
  if (tag.includes('weights')) return Math.sin(step / 800 + hash(tag)) * own + noise * 0.3
  return 2.3 * own * Math.exp(-t / 1100) + 0.12 * own + noise * (0.25 * Math.exp(-t / 2500) + 0.03)
}

export function minMax(y, points) {
  const n = y.length
  if (n <= points) return y.map((_, i) => i)
  const size = Math.ceil(n / (points / 2))
  const kept = new Set([0, n - 1])
  for (let a = 0; a < n; a += size) {
    let [low, high] = [a, a]
    for (let i = a; i < Math.min(n, a + size); i++) {
      if (!Number.isFinite(y[i])) kept.add(i)
      if (y[i] < y[low] || !Number.isFinite(y[low])) low = i
      if (y[i] > y[high] || !Number.isFinite(y[high])) high = i
    }
    kept.add(low).add(high)
  }
  return [...kept].sort((a, b) => a - b)
}
