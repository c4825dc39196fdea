// Where the reader points, shared by all panels: their cursors move together.

import { signal } from '@preact/signals'
import type { Cursor } from '../../views/Chart'

export const cursor = signal<Cursor | null>(null)
