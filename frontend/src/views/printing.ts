// Whether the page is laid out for paper: all of it is there, in light colours, and charts are drawn as SVG.

import { signal } from '@preact/signals'

export const printing = signal(false)
