/** From the first to the second, which is larger. */
export type Span = [number, number]

/** The span in as few digits as its width and its ends deserve, for links that people read. */
export function neat([low, high]: Span): Span {
  const fine = (size: number) => (size > 0 ? 10 ** (Math.floor(Math.log10(size)) - 3) : Infinity)
  const of = (value: number) => {
    const unit = Math.min(fine(high - low), fine(Math.abs(value)))
    return Number((Math.round(value / unit) * unit).toPrecision(15))
  }
  return [of(low), of(high)]
}
