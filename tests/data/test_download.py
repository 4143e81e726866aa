import hashlib
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from test_archive import make_tar, make_zip

from molgcn.data import download as module
from molgcn.data.archive import WrongContentError
from molgcn.data.download import RemoteFile, download, download_archive, recorded_hash
from molgcn.errors import UserError

CONTENT = b"smiles,y\n" + b"CCO,1.5\n" * 40_000


class Server(ThreadingHTTPServer):
    """A server of /<behaviour>/...; `asked` lists the Range headers of every path."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: dict[str, list[str | None]] = {}
        self.files: dict[str, bytes] = {}
        self.etag = '"one"'

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server, path = self.server, self.path.strip("/")
        behaviour, wanted = path.split("/")[0], self.headers.get("Range")
        server.asked.setdefault(path, []).append(wanted)
        content = server.files.get(path, CONTENT)
        if behaviour == "missing":
            self.send_error(404)
            return
        if behaviour == "page":
            content = b"<!DOCTYPE html><html>log in first</html>"
        start = 0
        if wanted and behaviour != "norange" and self.headers.get("If-Range") == server.etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("Content-Type", "text/html" if behaviour == "htmltype" else "application/octet-stream")
        self.end_headers()
        cut = len(content)
        if (behaviour in ("cut", "norange") and len(server.asked[path]) == 1) or behaviour == "alwayscut":
            cut = start + (len(content) - start) // 2
        self.wfile.write(content[start:cut])
        self.wfile.flush()
        if cut < len(content):
            self.close_connection = True
            self.connection.close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def remote(server, *paths, **options):
    return RemoteFile("data.csv", tuple(server.url(path) for path in paths), **options)


def leftovers(folder):
    return sorted(name for name in os.listdir(folder) if name not in ("data.csv", "data.csv.sha256.json", ".data.csv.lock"))


def test_download_once_and_record(server, tmp_path):
    file = remote(server, "good", size=len(CONTENT))
    path = download(file, tmp_path / "new" / "folder")
    assert path.read_bytes() == CONTENT
    assert recorded_hash(path) == hashlib.sha256(CONTENT).hexdigest()
    assert download(file, tmp_path / "new" / "folder") == path
    assert len(server.asked["good"]) == 1
    assert leftovers(path.parent) == []


def test_a_broken_connection_resumes(server, tmp_path):
    assert download(remote(server, "cut"), tmp_path).read_bytes() == CONTENT
    first, second = server.asked["cut"]
    assert first is None
    assert 0 < int(second.removeprefix("bytes=").removesuffix("-")) < len(CONTENT)
    assert leftovers(tmp_path) == []


def test_a_server_without_ranges_starts_again(server, tmp_path):
    assert download(remote(server, "norange"), tmp_path).read_bytes() == CONTENT


def test_a_later_run_goes_on_where_the_first_stopped(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    with pytest.raises(UserError, match="could not be downloaded"):
        download(remote(server, "cut"), tmp_path)
    kept = (tmp_path / "data.csv.partial").stat().st_size
    assert 0 < kept < len(CONTENT)
    assert download(remote(server, "cut"), tmp_path).read_bytes() == CONTENT
    assert server.asked["cut"] == [None, f"bytes={kept}-"]
    assert leftovers(tmp_path) == []


def test_a_changed_file_is_not_glued_to_the_old_part(server, tmp_path):
    with pytest.raises(UserError):
        download(remote(server, "alwayscut"), tmp_path)
    (tmp_path / "data.csv.partial").write_bytes(b"x" * 100)
    server.etag = '"two"'
    with pytest.raises(UserError):
        download(remote(server, "alwayscut"), tmp_path)
    assert not (tmp_path / "data.csv.partial").read_bytes().startswith(b"x")


def test_truncation_everywhere_never_leaves_a_file(server, tmp_path):
    with pytest.raises(UserError, match=r"ChunkedEncodingError after [\d,]+ bytes"):
        download(remote(server, "alwayscut"), tmp_path)
    assert len(server.asked["alwayscut"]) == module.ATTEMPTS
    assert not (tmp_path / "data.csv").exists()


@pytest.mark.parametrize("bad", ["missing", "page", "htmltype", "alwayscut"])
def test_the_next_mirror_is_tried(server, tmp_path, bad):
    path = download(remote(server, bad, "good"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert bad in server.asked
    assert leftovers(tmp_path) == []


def test_all_mirrors_dead_names_each_and_the_way_out(server, tmp_path):
    closed = "http://127.0.0.1:9/closed"
    file = RemoteFile("data.csv", (server.url("missing"), server.url("page"), closed))
    with pytest.raises(UserError) as error:
        download(file, tmp_path)
    message = str(error.value)
    assert "status 404" in message
    assert "web page" in message
    assert f"{closed}: ConnectionError" in message
    assert "dataset.path=" in message
    assert not (tmp_path / "data.csv").exists()


def test_published_size_checksum_and_content_are_checked(server, tmp_path):
    with pytest.raises(UserError, match="bytes where 5 are published"):
        download(remote(server, "good", size=5), tmp_path)
    blob = hashlib.sha1(b"blob %d\0" % len(CONTENT) + CONTENT).hexdigest()
    with pytest.raises(UserError, match="git object id"):
        download(remote(server, "good", git_blob="0" * 40), tmp_path)
    assert download(remote(server, "good", git_blob=blob), tmp_path / "right").read_bytes() == CONTENT

    def refuse(path):
        raise WrongContentError(f"it has {len(path.read_text().splitlines()):,} rows")

    with pytest.raises(UserError, match="it has 40,001 rows"):
        download(remote(server, "good", check=refuse), tmp_path)
    assert leftovers(tmp_path) == ["right"] + [name for name in leftovers(tmp_path) if name.endswith(".partial.json")]


def test_a_file_that_changed_after_its_download_is_refused(server, tmp_path):
    path = download(remote(server, "good"), tmp_path)
    os.utime(path, (1, 1))
    assert download(remote(server, "good"), tmp_path) == path  # touched, same content
    path.write_bytes(CONTENT.replace(b"1.5", b"1.6", 1))
    with pytest.raises(UserError, match="has changed since it was downloaded"):
        download(remote(server, "good"), tmp_path)
    path.unlink()
    server.files["good"] = CONTENT.replace(b"1.5", b"1.7", 1)
    with pytest.raises(UserError, match="at its first download"):
        download(remote(server, "good"), tmp_path)


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_archives_are_unpacked_checked_and_dropped(server, tmp_path, make):
    content = make(tmp_path / "archive", {"in/a.csv": b"1", "b.csv": b"2", "c.py": b"3"}).read_bytes()
    server.files |= {"good/new": content, "good/old": make(tmp_path / "archive", {"a.csv": b"0", "b.csv": b"2"}).read_bytes()}

    def check(path):
        if path.read_bytes() == b"0":
            raise WrongContentError("it is the old one")

    file = RemoteFile("data.zip", (server.url("good/old"), server.url("good/new")))
    paths = download_archive(file, {"a.csv": check, "b.csv": check}, tmp_path / "cache")
    assert [path.read_bytes() for path in paths] == [b"1", b"2"]
    names = [".data.zip.lock", "a.csv", "a.csv.sha256.json", "b.csv", "b.csv.sha256.json"]
    assert sorted(os.listdir(tmp_path / "cache")) == names
    assert download_archive(file, {"a.csv": check, "b.csv": check}, tmp_path / "cache") == paths
    assert len(server.asked["good/new"]) == 1


def test_a_folder_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(UserError, match=r"cannot be written.*dataset.cache_dir"):
        download(remote(server, "good"), tmp_path / "file")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_disk_that_is_full(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 1)
    with pytest.raises(UserError, match="could not be downloaded"):
        download(remote(server, "cut"), tmp_path)
    partial = tmp_path / "data.csv.partial"
    partial.unlink()
    partial.symlink_to("/dev/full")
    with pytest.raises(UserError, match="No space left on device"):
        download(remote(server, "cut"), tmp_path)
