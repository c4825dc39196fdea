// A sound as the server describes it, and the outline of its wave as a path.

/** A sound: in words, its length, its largest sample, and for each channel the lowest and the highest sample at each place. */
export interface Wave {
  about: string
  seconds: number
  peak: number
  peaks: (number | string)[][][]
}

export interface Sound extends Wave {
  /** The bytes of a WAV file; null where it is too long to be sent. */
  wav: Uint8Array | null
}

/** The filled outline of a channel, over `n` units of width and from -1 to 1 in height; places without a finite sample are gaps. */
export function wavePath(channel: Wave['peaks'][number], peak: number): string {
  const scale = peak > 0 ? 1 / peak : 0
  const y = (value: number) => +(-value * scale).toFixed(3)
  let path = ''
  for (const [i, ends] of channel.entries()) {
    const [low, high] = ends.map(Number) as [number, number]
    if (Number.isFinite(low) && Number.isFinite(high)) path += `M${i} ${y(high)}H${i + 1}V${y(low)}H${i}Z`
  }
  return path
}

/** Seconds as minutes and seconds: 0:02.5. */
export function timeOf(seconds: number): string {
  const tenths = Math.round(seconds * 10)
  return `${Math.floor(tenths / 600)}:${((tenths % 600) / 10).toFixed(1).padStart(4, '0')}`
}
