import { defineConfig } from 'vitest/config'

// The page is served under a strict Content-Security-Policy: no inlined script, nothing from elsewhere.
export default defineConfig({
  base: './',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    outDir: '../src/sightglass/server/static',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    license: { fileName: 'THIRD_PARTY.md' },
    reportCompressedSize: false,
  },
  server: { proxy: { '/api': { target: 'http://127.0.0.1:8899', ws: true } } },
  test: { include: ['test/**/*.test.ts'] },
})
