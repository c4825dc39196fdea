import 'uplot/dist/uPlot.min.css'
import './style/tokens.css'
import './style/base.css'
import './style/frame.css'
import './style/runs.css'
import './style/charts.css'
import './style/views.css'
import './style/ask.css'
import './style/tensors.css'
import './style/media.css'
import './style/commands.css'
import './style/printing.css'

import { effect } from '@preact/signals'
import { render } from 'preact'
import { App } from './app'
import { ApiError, get } from './data/api'
import { details } from './data/details'
import { file, openFile } from './data/file'
import { followGrowth } from './data/growth'
import { followColumns } from './data/columns'
import { followRuns, loadRuns, runs, socket } from './data/runs'
import { followScalars } from './data/scalars'
import { drawPlotly } from './data/plotlyScript'
import { followNewTabs, locked, readToken, session } from './data/session'
import { runTags } from './data/tags'
import type { Session } from './data/types'
import { shortcuts } from './shortcuts'
import { followLocation } from './state/state'
import { followTheme } from './state/theme'
import { followScrolling } from './ui/atRest'
import { followPrinting } from './ui/printPage'
import { followKeys } from './ui/shortcuts'
import { showToasts, tellError } from './ui/toasts'
import { forgetOldTrees } from './views/forget'
import { showInvisible } from './views/visible'

function start(): void {
  if (!file) socket.start()
  get<Session>('session').then((now) => (session.value = now), tellError)
  loadRuns().catch(tellError)
}

await openFile()
forgetOldTrees()
showInvisible()
const token = readToken()
followLocation()
followNewTabs()
followTheme()
followKeys(shortcuts)
followPrinting()
followScrolling()
drawPlotly()
followRuns()
followColumns()
followGrowth()
runTags.followDrawn()
followScalars()
details.followDrawn()
// The server works while the page is first rendered. Without a token, a proxy in between may add it.
if (token || file) start()
else get<Session>('session').then(start, (error) => (error instanceof ApiError && error.status === 401 ? (locked.value = 'missing') : tellError(error)))
render(<App />, document.getElementById('app')!)
showToasts()

// A link with a token may be opened in a tab that already shows the page.
addEventListener('hashchange', () => {
  if (!location.hash.includes('token=')) return
  readToken()
  locked.value = ''
  start()
})
effect(() => {
  const n_live = runs.value?.filter((run) => run.live).length ?? 0
  document.title = n_live ? `${n_live} live · sightglass` : 'sightglass'
})
