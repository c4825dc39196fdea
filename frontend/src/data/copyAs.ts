// What a card shows, as a program or a command that shows the same.

import type { Run } from './types'

/** A query of a run, or of all live runs whose names match a pattern. */
export interface Asked {
  run: Run | string
  query: string
}

/** Options of `sightglass.plot`; those that are usual are left out. */
export interface PlotOptions {
  x: string
  smooth: number
  xlog: boolean
  ylog: boolean
  clip: boolean
}

/** What stands for the reader's own hub file: the page does not know its name. */
const HUB = 'controller.hub'

/** A live run by its name, or by its id where others have that name. */
const calledOf = (run: Run, all: readonly Run[]): string => (all.some((one) => one.live && one.own_name === run.own_name && one.key !== run.key) ? run.id : run.own_name)

/** Whether a program or a command can name the run: one without files is gone with its end. */
export const isNamed = (run: Run): boolean => run.live || run.directory !== ''

const python = (text: string): string => JSON.stringify(text)

const shell = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`)

/** How the library reaches what is asked, and by which name. */
function placeOf(run: Run | string, recorded: boolean, all: readonly Run[]): { how: 'fleet' | 'open' | 'connect'; name: string; hub: string } {
  if (typeof run === 'string') return { how: 'fleet', name: run, hub: '' }
  if (!run.live || (recorded && run.directory)) return { how: 'open', name: run.directory, hub: '' }
  return { how: 'connect', name: calledOf(run, all), hub: run.hub_role && HUB }
}

/** The card in Python; `recorded` asks for what is recorded, of live runs, too. */
export function pythonOf(asked: readonly Asked[], recorded: boolean, all: readonly Run[], title: string, options: Partial<PlotOptions> = {}): string {
  const { x = 'step', smooth = 0, xlog = false, ylog = false, clip = false } = options
  const given = [
    title !== asked[0]?.query && `title=${python(title)}`,
    x !== 'step' && `x=${python(x)}`,
    smooth > 0 && `smooth=${smooth}`,
    xlog && 'log_x=True',
    ylog && 'log_y=True',
    clip && 'clip=True',
  ].filter(Boolean)
  const streams = asked.map(({ run, query }) => {
    const { how, name, hub } = placeOf(run, recorded, all)
    return `sg.${how}(${python(name)}${hub && `, hub=${python(hub)}`}).stream(${python(query)})`
  })
  return `import sightglass as sg\n\nsg.plot(\n${[...streams, ...given].map((one) => `    ${one},\n`).join('')})\n`
}

/** The card as commands for a terminal, one for each run. */
export function commandOf(asked: readonly Asked[], recorded: boolean, all: readonly Run[]): string {
  const queries = new Map<string, string[]>()
  for (const { run, query } of asked) {
    const { name, hub } = placeOf(run, recorded, all)
    const watch = `sightglass ${hub && `--hub ${hub} `}watch ${shell(name)}`
    queries.set(watch, [...(queries.get(watch) ?? []), shell(query)])
  }
  return [...queries].map(([watch, several]) => `${watch} ${several.join(' ')}\n`).join('')
}
