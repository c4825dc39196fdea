import { defineConfig } from 'vitest/config'

// The page is served under a strict Content-Security-Policy: no inlined script, nothing from elsewhere.
const atOnce = new Set<string>()

export default defineConfig({
  base: './',
  plugins: [
    {
      // Everything but what is loaded later is one script, which a page that is saved as a file holds in itself.
      name: 'at-once',
      buildEnd() {
        const ahead = [...this.getModuleIds()].filter((id) => this.getModuleInfo(id)?.isEntry)
        for (let id = ahead.pop(); id !== undefined; id = ahead.pop()) {
          if (atOnce.has(id)) continue
          atOnce.add(id)
          ahead.push(...(this.getModuleInfo(id)?.importedIds ?? []))
        }
      },
    },
  ],
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: '../src/sightglass/server/static',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    license: { fileName: 'THIRD_PARTY.md' },
    reportCompressedSize: false,
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: 'index', test: (id: string) => atOnce.has(id) }] } } },
  },
  server: { proxy: { '/api': { target: 'http://127.0.0.1:8899', ws: true } } },
  test: { include: ['test/**/*.test.ts'], testTimeout: 60_000 }, // a busy machine is slow: time decides no test
})
