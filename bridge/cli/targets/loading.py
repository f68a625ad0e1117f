"""Load Python targets to a ToolBox; errors of user code are shown with the user's own frames."""

from __future__ import annotations

import re
import sys
from collections.abc import Sized
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import isfunction
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from bridge.cli.reporting import ImportFailedError, user_location, users_traceback
from bridge.cli.targets.openapi import is_application, operation_tools
from bridge.cli.targets.target import FileTarget, OpenApiTarget, similar_file, target_argument
from bridge.errors import DefinitionError, TargetError
from bridge.hosting.process import imported_target
from bridge.text import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from bridge.cli.targets.target import LocalTarget, ModuleTarget
    from bridge.server.features import Features
    from bridge.server.server import Server
    from bridge.tools.lifespan import Lifespan
    from bridge.tools.middleware import Middleware
    from bridge.tools.toolbox import ToolBox

_CONFIGURATIONS = ("mcp.json", ".mcp.json")
_SKIPPED = ("_*", "test_*.py", "*_test.py", "conftest.py")
"""Files of a directory that are not imported: private ones, and tests, whose packages a server may lack."""
_SKILL = "SKILL.md"
_LIBRARIES = {"mcp", "fastmcp"}
_SERVERS = {"FastMCP", "MCPServer", "Server"}


def load_features(targets: Sequence[LocalTarget]) -> Features:
    """Import targets and combine what they offer; a box that is the only one of its kind is used itself.

    Raises:
        TargetError: A target has no such object or offers nothing, or two tools have the same name.
        ImportFailedError: A target raised an exception when it was imported.
    """
    from bridge.server.features import Features  # noqa: PLC0415 - after standard output is diverted

    if (server := server_in(targets)) is not None:
        return server.features if server.lifespan is None else replace(server.features, lifespans=(server.lifespan,))
    sources = [source for target in targets for source in _sources_of(target)]
    try:
        features = Features.of(*sources)
        modules = [vars(_imported(target)) for target in targets if _is_module(target)]
        lifespans = tuple(found for names in modules if (found := _lifespan_in(names)) is not None)
        middleware = tuple(dict.fromkeys(each for names in modules for each in _middleware_in(names)))
    except DefinitionError as error:
        raise TargetError(str(error)) from error
    if not (lifespans or middleware):
        return features
    return replace(
        features,
        lifespans=(*features.lifespans, *lifespans),
        middleware=(*features.middleware, *middleware),
    )


def _is_module(target: LocalTarget) -> TypeGuard[FileTarget | ModuleTarget]:
    return not (isinstance(target, OpenApiTarget) or (isinstance(target, FileTarget) and target.path.is_dir()))


def _lifespan_in(names: Mapping[str, Any]) -> Lifespan[Any] | None:
    """Return the lifespan of a module, which functions of other modules get there."""
    from bridge.tools.lifespan import lifespan_in  # noqa: PLC0415 - after standard output is diverted

    return lifespan_in(names)


def _middleware_in(names: Mapping[str, Any]) -> tuple[Middleware, ...]:
    """Return what a module names ``middleware``, if it is middleware, which surrounds everything that is served."""
    from bridge.tools.middleware import Middleware, checked_middleware  # noqa: PLC0415 - as above

    given = names.get("middleware")
    are_any = isinstance(given, list | tuple) and any(isinstance(each, Middleware) for each in given)
    return checked_middleware(given) if are_any or isinstance(given, Middleware) else ()


def tools_of(features: Features, targets: Sequence[LocalTarget]) -> ToolBox:
    """Return the tools of what targets offer.

    Raises:
        TargetError: They have resources or prompts, and no tools.
    """
    tools = features.tools
    if not tools:
        raise TargetError(
            f"{', '.join(map(target_argument, targets))} has no tools; `bridge serve` serves its resources and prompts"
        )
    return tools


def server_in(targets: Sequence[LocalTarget]) -> Server | None:
    """Return the server that is the only target; None if there is none, or another one."""
    if len(targets) != 1 or isinstance(target := targets[0], OpenApiTarget):
        return None
    if isinstance(target, FileTarget) and target.path.is_dir():
        return None
    sources = _sources_of(target)
    return sources[0] if len(sources) == 1 and _is_published(sources[0]) else None


def version_of(targets: Sequence[LocalTarget]) -> str:
    """``__version__`` of the served module; empty if there is none, or several modules."""
    if len(targets) != 1 or isinstance(target := targets[0], OpenApiTarget):
        return ""
    if isinstance(target, FileTarget) and target.path.is_dir():
        return ""
    version = getattr(_imported(target), "__version__", "")
    return version if isinstance(version, str) else ""


def _sources_of(target: LocalTarget) -> list[object]:
    if isinstance(target, OpenApiTarget):
        return [operation_tools(target.path or target.source, target.openapi)]
    if isinstance(target, FileTarget) and target.path.is_dir():
        return _sources_in(target.path)
    module = _imported(target)
    sources = _offered(module, target) if target.attribute is None else [_named(module, target)]
    if all(isinstance(source, Sized) and not len(source) for source in sources):
        raise TargetError(f"{target_argument(target)} has no tools: {_remedy(module, target)}")
    for source in sources:
        methods = _tool_methods(source) if isinstance(source, type) else []
        if isinstance(source, type) and any(not isinstance(each, staticmethod | classmethod) for each in methods):
            name = source.__name__.lower()
            raise TargetError(
                f"{target_argument(target)} is a class whose tools need an instance: "
                f"write {name} = {source.__name__}(…) at module level, and name {_file_of(target)}:{name}"
            )
    return sources


def _sources_in(directory: Path) -> list[object]:
    """Tools of the files in a directory, each once, and its skills; files without tools, and tests, are skipped."""
    skills = _skills_in(directory)
    if (directory / _SKILL).exists():
        return skills  # Python files in it are scripts of the skill
    paths = [path for path in sorted(directory.glob("*.py")) if not any(map(path.match, _SKIPPED))]
    files = [*map(FileTarget, paths)]
    offered = [source for file in files for source in _offered(_imported(file), file)]
    sources = [*{id(source): source for source in offered}.values(), *skills]  # a file may import tools of another
    if not sources:
        found = f"none of its {len(files)} Python files has" if files else "it has no Python file with"
        configurations = [path for name in _CONFIGURATIONS if (path := directory / name).exists()]
        servers = f"; for the servers of its configuration, name {configurations[0]}" if configurations else ""
        raise TargetError(f"{directory} has no tools: {found} a function decorated with @bridge.tool{servers}")
    return sources


def _skills_in(directory: Path) -> list[object]:
    """Return the skills of a directory that is one, or has some; empty if it has none."""
    if not any(any(directory.glob(pattern)) for pattern in (_SKILL, f"[!.]*/{_SKILL}")):
        return []
    from bridge.skills.folder import skills_in  # noqa: PLC0415 - only with skills

    try:
        return [skills_in(directory)]
    except DefinitionError as error:
        raise TargetError(str(error)) from error


def _imported(target: FileTarget | ModuleTarget) -> ModuleType:
    with _users_code(target):
        return _import_file(target.path) if isinstance(target, FileTarget) else _import_module(target.module)


def _named(module: ModuleType, target: FileTarget | ModuleTarget) -> object:
    try:
        named: object = attrgetter(str(target.attribute))(module)
    except AttributeError:
        near = nearest(str(target.attribute), vars(module))
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TargetError(f"{_file_of(target)} has no object {target.attribute!r}{hint}") from None
    if is_application(named):
        return operation_tools(named, target.openapi)
    if _is_web_application(named):
        raise TargetError(f"{target_argument(target)} is a Starlette application, {_of_application(module, target)}")
    return _from_mcp(named) if _is_server(named) else named


def _offered(module: ModuleType, target: FileTarget | ModuleTarget) -> list[object]:
    """The module's server; or its boxes, and of other kinds its functions, tools, and objects with methods.

    Functions and methods are decorated ones. Of a module with nothing else, a server of the SDK or of FastMCP.
    """
    from bridge.tools.box import Box  # noqa: PLC0415 - after standard output is diverted
    from bridge.tools.decoration import Published  # noqa: PLC0415 - as above
    from bridge.tools.function import found_in  # noqa: PLC0415 - as above

    named = {id(value): (name, value) for name, value in vars(module).items()}.values()
    servers = [(name, value) for name, value in named if _is_published(value) and not value.is_mounted]
    if servers:
        return [_only_server(servers, target)]
    boxes: dict[type[Box[Any]], tuple[str, Box[Any]]] = {}
    for name, value in named:
        if isinstance(value, Box):
            kind = next(each for each in type(value).__mro__ if "noun" in vars(each))
            if (other := boxes.setdefault(kind, (name, value)))[1] is not value:
                names = f"{_file_of(target)}:{other[0]} or {_file_of(target)}:{name}"
                raise TargetError(f"{target_argument(target)} has several {kind.__name__}es; name one: {names}")
    items = [value for _, value in named if isinstance(value, Published) or _is_decorated(value)]
    if not boxes:
        foreign = [] if items else [(name, value) for name, value in named if _is_server(value)]
        return [_from_mcp(_only_server(foreign, target))] if foreign else items
    covered = tuple(each for kind in boxes for each in kind.kinds)
    others = [each for item in items for each in found_in(item) if not isinstance(each, covered)]
    return [*(box for _, box in boxes.values()), *others]


def _only_server(servers: Sequence[tuple[str, Any]], target: FileTarget | ModuleTarget) -> object:
    if len(servers) > 1:
        names = " or ".join(f"{_file_of(target)}:{name}" for name, _ in servers)
        raise TargetError(f"{target_argument(target)} has several servers; name one: {names}")
    return servers[0][1]


def _is_server(value: object) -> bool:
    """True for a server of FastMCP or the SDK."""
    return any(
        kind.__module__.partition(".")[0] in _LIBRARIES and kind.__name__ in _SERVERS for kind in type(value).__mro__
    )


def _is_web_application(value: object) -> bool:
    """True for a Starlette application, as `bridge.server.http_app` makes it as well."""
    return any(
        (kind.__module__, kind.__name__) == ("starlette.applications", "Starlette") for kind in type(value).__mro__
    )


def _of_application(module: ModuleType, target: FileTarget | ModuleTarget) -> str:
    server = next((name for name, value in vars(module).items() if _is_published(value)), None)
    source = "the functions that it serves" if server is None else f"its server, {_file_of(target)}:{server}"
    return f"whose routes are not tools: name {source}, or run it by an ASGI server such as uvicorn, and name its URL"


def _is_published(value: object) -> TypeGuard[Server]:
    """True for a `bridge.Server`."""
    if "bridge.server.server" not in sys.modules:  # importing it would slow all other targets down
        return False
    from bridge.server.server import Server  # noqa: PLC0415 - as above

    return isinstance(value, Server)


def _from_mcp(server: object) -> Features:
    from bridge.gateway import from_mcp  # noqa: PLC0415 - importing the SDK takes most of a second

    return from_mcp(server)


def _is_decorated(value: object) -> bool:
    """True for a decorated function, or an object with decorated methods."""
    from bridge.tools.decoration import stored_settings  # noqa: PLC0415 - after standard output is diverted

    return not isinstance(value, type) and (bool(stored_settings(value)) or bool(_tool_methods(type(value))))


def _tool_methods(kind: type) -> list[object]:
    """The decorated methods of a class."""
    from bridge.tools.decoration import stored_settings  # noqa: PLC0415 - after standard output is diverted

    return [attribute for base in kind.__mro__ for attribute in vars(base).values() if stored_settings(attribute)]


def _remedy(module: ModuleType, target: FileTarget | ModuleTarget) -> str:
    applications = [name for name, value in vars(module).items() if is_application(value)]
    if applications:
        name = f"{_file_of(target)}:{applications[0]}"
        return f"it contains a FastAPI application: name {name}, and choose with --operations"
    if any(map(_is_web_application, vars(module).values())):
        return f"it contains a Starlette application, {_of_application(module, target)}"
    classes = [value for value in vars(module).values() if isinstance(value, type) and _tool_methods(value)]
    if classes:
        name = classes[0].__name__
        return f"its class {name!r} has tools, but needs an instance at module level, such as tools = {name}(…)"
    functions = [
        name
        for name, value in vars(module).items()
        if isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]
    undecorated = f", or name an undecorated one: {_file_of(target)}:{functions[0]}" if functions else ""
    return f"decorate a function with @bridge.tool{undecorated}"


def _import_file(path: Path) -> ModuleType:
    name, is_taken = _module_name(path)
    if (present := sys.modules.get(name)) is not None and _is_file(present, path):
        return present
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(len(sys.path) if is_taken else 0, directory)
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_name(path: Path) -> tuple[str, bool]:
    """Module name of a file, and True if another module has that name, as for ``json.py``."""
    name = re.sub(r"\W", "_", path.stem)
    if not _is_taken(name, path):
        return name, False
    number = 1
    while _is_taken(candidate := f"{name}_{number}", path):
        number += 1
    return candidate, True


def _is_taken(name: str, path: Path) -> bool:
    if (present := sys.modules.get(name)) is not None:
        return not _is_file(present, path)
    spec = find_spec(name)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() != path.resolve()


def _is_file(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)  # built-in modules lack the attribute
    return file is not None and Path(file).resolve() == path.resolve()


def _import_module(name: str) -> ModuleType:
    if (working_directory := str(Path.cwd())) not in sys.path and "" not in sys.path:
        sys.path.insert(0, working_directory)
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise TargetError(f"there is no module {error.name!r}{similar_file(name)}") from None
    if hasattr(module, "__path__") and getattr(module, "__file__", None) is None:  # to Python a package, if need be
        raise TargetError(f"{name!r} is a directory: write {name.replace('.', '/')}/, or name a file in it")
    return module


@contextmanager
def _users_code(target: FileTarget | ModuleTarget) -> Iterator[None]:
    token = imported_target.set(_file_of(target))
    try:
        yield
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        where = user_location(error)
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = f"{type(error).__name__}: {text}".splitlines()[0]
        message = f"importing {_file_of(target)} failed: {reason}" + (f" ({where})" if where else "")
        raise ImportFailedError(message, users_traceback(error)) from error
    finally:
        imported_target.reset(token)


def _file_of(target: FileTarget | ModuleTarget) -> str:
    return str(target.path) if isinstance(target, FileTarget) else target.module
