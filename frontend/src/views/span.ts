/** From the first to the second, which is larger. */
export type Span = [number, number]
