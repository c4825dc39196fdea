// The page's styles for a box that stands by itself, within a shadow root.

import uplot from 'uplot/dist/uPlot.min.css?inline'
import base from '../style/base.css?inline'
import charts from '../style/charts.css?inline'
import mounted from '../style/mount.css?inline'
import tokens from '../style/tokens.css?inline'
import views from '../style/views.css?inline'

/** What the page says of its root holds for the box. */
export const css = [uplot, tokens.replace(/:root\[([^\]]*)\]/g, ':host([$1])').replaceAll(':root', ':host'), base, charts, views, mounted].join('\n')
