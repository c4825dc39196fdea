"""What we use of JAX that is private, or changes: the tests that say so when it goes."""

from __future__ import annotations

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
from jax import lax

from sightglass.jax.program import compat
from sightglass.jax.program.primitive import wanted

from .programs import divided, mesh


def only(f, *args):
    return jax.make_jaxpr(f)(*args).eqns[-1]


def test_supported_minor():
    assert tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 10)


def test_the_effect_is_allowed_where_that_of_debug_callback_is():
    assert compat.LogEffect.__mro__[1].__name__ == "DebugEffect"


def test_scan_arity():
    eqn = only(lambda x: lax.scan(lambda c, y: ((c[0] + x, c[1] * 2), y + x), (x, x), jnp.ones(3)), 1.0)
    assert compat.scan_arity(eqn.params) == (1, 2)


def test_static_and_donated_arguments():
    f = functools.partial(jax.jit, static_argnums=1, static_argnames="mode", donate_argnums=0)(lambda x, n, mode: x)
    assert compat.static_arguments(f) == ((1,), ("mode",))
    assert compat.donated_arguments(f)[0] == (0,)
    assert compat.static_arguments(len) == compat.donated_arguments(len) == ((), ())


def test_equations_can_be_bound_again():
    f = jax.custom_jvp(jnp.sin)
    f.defjvp(lambda p, t: (f(p[0]), 7 * t[0]))
    eqn = only(f, 1.0)
    assert jax.grad(lambda x: compat.bind(eqn, [x])[0])(1.0) == 7
    assert compat.bind(only(lambda x: x + 1, 1.0), [2.0, 1.0])[0] == 3


def test_an_inner_jit_tells_its_options():
    params = only(jax.jit(lambda x: x * 2, donate_argnums=0, keep_unused=True), 1.0).params
    assert compat.jit_options(params)["donate_argnums"] == (0,)
    assert compat.jit_options(params)["keep_unused"]
    assert not compat.specified(params["in_shardings"])


def test_manual_axes():
    spec = jax.sharding.PartitionSpec("d")
    eqn = only(jax.shard_map(lambda x: x * 2, mesh=mesh(), in_specs=spec, out_specs=spec), divided(jnp.ones(4)))
    assert compat.manual_axes(eqn.params) == {"d"}


def test_where():
    assert "test_compat.py" in compat.where(only(lambda x: x + 1, 1.0))


def test_jaxprs_are_found_in_the_objects_of_newer_primitives():
    def f(x):
        return lax.custom_root(
            lambda y: y - x, x, lambda g, y: lax.fori_loop(0, x.astype(int), lambda i, y: y, y), lambda g, y: y
        )

    assert any(list(compat.subjaxprs(eqn.params)) for eqn in jax.make_jaxpr(f)(1.0).eqns)


def test_a_call_can_be_made_of_equations():
    jaxpr = jax.make_jaxpr(lambda x, y: jnp.sin(x) * y + 1)(1.0, 2.0)
    eqn = compat.as_one(jaxpr.eqns, compat.variables(jaxpr.jaxpr.outvars), compat.call_like())
    assert eqn.primitive.name in ("jit", "pjit")
    assert compat.bind(eqn, [1.0, 2.0]) == [jnp.sin(1.0) * 2 + 1]


def test_the_value_of_a_user_context_can_be_read_past_its_property():
    holder = compat.value_holder(wanted)
    assert holder is not wanted
    with wanted("something"):
        assert holder.value == "something"
    assert holder.value is None


def test_six_rules_of_jax_are_replaced_once_and_no_other_entry():
    code = """
import sys, jax, jax.numpy, jax.extend.core.primitives
tables = {
    f"{module}.{name}": table
    for module in list(sys.modules) if module.startswith("jax._src")
    for name, table in vars(sys.modules[module]).items() if type(table) is dict and not name.startswith("__")
}
before = {name: dict(table) for name, table in tables.items()}
import sightglass.jax
sightglass.jax._rules.install()
rules = "sightglass.jax.rules"
for name, table in tables.items():
    for key, old in before[name].items():
        if table.get(key) is not old and getattr(key, "multiple_results", None) is not None:
            wrapped = [cell.cell_contents for cell in table[key].__closure__ if callable(cell.cell_contents)]
            assert table[key].__module__ == rules and old in wrapped, (name, key)
            print(name.rpartition(".")[2], key)
"""
    out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert sorted(set(out.splitlines())) == [
        "fancy_primitive_batchers cond",
        "fancy_primitive_batchers while",
        "partial_eval_jaxpr_custom_rules scan",
        "partial_eval_jaxpr_custom_rules while",
        "primitive_jvps scan",
        "primitive_linearizations scan",
    ]


def test_the_miscompiled_product_is_not():
    assert float(jax.jit(lambda x: (x @ jnp.ones((64, 64))).sum())(jnp.ones((64, 64)))) == 262144
