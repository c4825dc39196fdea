// Descriptions for tests: what is not given is as the server sends it by default.

import type { Acknowledgement, EventInfo, HistoryEntry, Observable, Run, StreamInfo } from '../src/data/types'

export const acknowledgement = (given: Partial<Acknowledgement>): Acknowledgement => ({ applied: true, event: '', index: -1, step: -1, wall_time: 0, old: null, result: null, note: '', ...given })
export const entry = (given: Partial<HistoryEntry>): HistoryEntry => ({ kind: '', name: '', value: null, event: '', index: -1, step: -1, wall_time: 0, old: null, result: null, error: '', client: '', note: '', ...given })
export const observable = (given: Partial<Observable>): Observable => ({ type: '', example: '', fields: {}, step: null, ...given })
export const event = (given: Partial<EventInfo>): EventInfo => ({ origin: 'observe', n_events: 0, snapshot: false, observables: {}, note: '', n_lost: 0, age_s: null, interval_s: null, busy_s: null, longest_s: null, ...given })
export const stream = (given: Partial<StreamInfo>): StreamInfo => ({ stream: 1, query: 'q', tag: 'q', clients: [], n_records: 0, n_events: 0, n_skipped: 0, n_dropped: 0, n_unpaired: 0, n_errors: 0, n_failures: 0, last_error: '', stride: 1, spent_s: 0, recorded: false, ...given })
export const run = (given: Partial<Run>): Run => ({
  key: '', id: '', name: '', own_name: '', title: '', config: {}, metrics: [], state: 'ended', live: false, hub_role: '', source: 'sightglass', project: '', directory: '', host: 'h', started: 0, ended: 1, changed: null, version: '', described: 0, last_step: 5, why: '', sentence: '', commit: '', problem: '', alerts: { n: 0, title: '', level: '', wall_time: 0 },
  annotations: { name: '', labels: [], notes: '', archived: false, baseline: false, deleted: 0 }, ...given,
})
