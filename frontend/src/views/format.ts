// Numbers, durations and times as a reader wants them.

/** A number in at most `digits` significant digits, without trailing zeros. */
export function number(value: number, digits = 4): string {
  if (Number.isNaN(value)) return 'NaN'
  if (!Number.isFinite(value)) return value > 0 ? '+∞' : '−∞'
  if (value === 0) return '0'
  const size = Math.abs(value)
  if (Number.isInteger(value) && size < Math.max(1e6, 10 ** digits)) return minus(String(value))
  if (size < 1e-3 || size >= Math.max(1e6, 10 ** digits)) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split('e') as [string, string]
    return minus(`${trimmed(mantissa)}e${Number(exponent)}`)
  }
  // Digits before the point are all written: 160, not 1.6e+2.
  return minus(trimmed(value.toPrecision(Math.max(digits, Math.floor(Math.log10(size)) + 1))))
}

const trimmed = (text: string): string => (text.includes('.') ? text.replace(/\.?0+$/, '') : text)
export const minus = (text: string): string => text.replaceAll('-', '−')

/** A mean and its deviation, to the same decimal place: 0.9200 ± 0.0043. */
export function meanAndDeviation(mean: number, deviation: number): [string, string] {
  const places = 1 - Math.floor(Math.log10(Math.abs(deviation)))
  const shown = places >= 0 && places <= 12 && Math.abs(mean) < 1e6
  return [shown ? minus(mean.toFixed(places)) : number(mean, 4), number(deviation, 2)]
}

/** A count: 950, 12.3k, 4M; 1.2e18. */
export function count(value: number): string {
  const size = Math.abs(value)
  if (size >= 999.5e12) return number(value, 3)
  for (const [unit, name] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']] as const) {
    if (size >= unit) return minus(`${trimmed((value / unit).toPrecision(3))}${name}`)
  }
  return number(value)
}

/** A count with all its digits, as long as they can be read: 27,213; 12.3M. */
export const exact = (value: number): string => (Math.abs(value) < 1e6 ? minus(value.toLocaleString('en')) : count(value))

/** Seconds: 12 s, 3 min 20 s, 2 h 05 min, 3 d 4 h. */
export function duration(seconds: number): string {
  const s = Math.abs(seconds)
  const sign = seconds < 0 ? '−' : ''
  if (s < 1) return `${sign}${number(s, 2)} s`
  if (s < 60) return `${sign}${number(s, 3)} s`
  if (s < 3600) return `${sign}${Math.floor(s / 60)} min${s % 60 >= 1 ? ` ${two(Math.floor(s % 60))} s` : ''}`
  if (s < 86400) return `${sign}${Math.floor(s / 3600)} h ${two(Math.floor((s % 3600) / 60))} min`
  return `${sign}${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`
}

const two = (n: number): string => String(n).padStart(2, '0')

/** A time of day. */
export function timeOf(seconds: number): string {
  const date = new Date(seconds * 1000)
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`
}

/** A date and a time of day. */
export function dateTime(seconds: number): string {
  const date = new Date(seconds * 1000)
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${timeOf(seconds)}`
}

/** Any value of a config, on one line. */
export function value(of: unknown): string {
  if (typeof of === 'number') return number(of, 6)
  if (typeof of === 'string') return of
  return JSON.stringify(of) ?? ''
}

/** How the names of what a machine does end, and their units. */
const UNITS = [['_percent', '%'], ['_mb_s', 'MB/s'], ['_gb', 'GB'], ['_w', 'W'], ['_celsius', '°C']] as const

/** What a number is called, and its unit: `process memory` in `GB` for `process_memory_gb`. */
export function named(name: string): [name: string, unit: string] {
  const [end, unit] = UNITS.find(([one]) => name.endsWith(one)) ?? ['', '']
  return [name.slice(0, name.length - end.length).replaceAll('_', ' '), unit]
}
