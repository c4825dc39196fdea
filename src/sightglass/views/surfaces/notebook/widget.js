// The script of each widget: loads the module of views and cards, once per page, and hands it the widget.

const LOADED = Symbol.for('sightglass.views')
const MAX_TRIES = 40
const PAUSE_MS = 250

/** The module. A separate widget, the library, holds its text. */
async function moduleOf(model) {
  const id = model.get('library')
  const loaded = (globalThis[LOADED] ??= new Map())
  if (!loaded.has(id)) {
    const loading = load(model, id)
    loaded.set(id, loading)
    loading.catch(() => loaded.delete(id))
  }
  return loaded.get(id)
}

async function load(model, id) {
  let library
  // After a reload widgets are restored in any order: the library may be the last.
  for (let tries = 0; !library; tries++) {
    try {
      library = await model.widget_manager.get_model(id)
    } catch (error) {
      if (tries > MAX_TRIES) throw error
    }
    if (!library) {
      if (tries > MAX_TRIES) throw new Error('The module of views did not arrive within 10 s')
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
    }
  }
  const url = URL.createObjectURL(new Blob([library.get('source')], { type: 'text/javascript' }))
  try {
    return await import(/* webpackIgnore: true */ /* @vite-ignore */ url)
  } finally {
    URL.revokeObjectURL(url)
  }
}

export default () => {
  let connecting
  // Not awaited by `initialize`: other widgets, such as the library, are restored after it.
  const connect = (model) => (connecting ??= moduleOf(model).then((module) => module.connect(model)))
  return {
    initialize({ model }) {
      connect(model).catch(() => (connecting = null))
    },
    async render({ model, el }) {
      try {
        return (await connect(model))(el)
      } catch (error) {
        connecting = null
        el.append(`Cannot load the view: ${error.message}`)
      }
    },
  }
}
