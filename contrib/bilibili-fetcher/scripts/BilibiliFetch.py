"""Gives the subtitles of a Bilibili video: JSON on stdin, JSON on stdout, no package but the standard library.

Asks the API at TAVERN_CONFIG_API_BASE, with the cookie TAVERN_CONFIG_BILIBILI_COOKIE if there is one.
"""

import json
import os
import re
import sys
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlencode, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

MAX_ANSWER = 8 << 20
SECONDS = 15
BVID = re.compile(r"BV[0-9A-Za-z]{10}")


class Failure(Exception):
    """What went wrong, for the caller."""


class NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the cookie goes to the API and nowhere else."""

    def redirect_request(self, *_):
        return None


def progress(share, text):
    print(f"::progress {share} {text}", file=sys.stderr, flush=True)


def video_of(text):
    """Return the BV number and the part that an address names."""
    found = BVID.search(text)
    if found is None:
        raise Failure(f"{text[:100]!r} is neither the address nor the BV number of a Bilibili video")
    part = parse_qs(urlsplit(text).query).get("p", ["1"])[0] if "?" in text else "1"
    return found[0], max(1, int(part)) if part.isdecimal() and len(part) < 6 else 1


def fetch(address, cookie=None):
    """Return the JSON at an address."""
    headers = {"User-Agent": "Mozilla/5.0 (tavern-host bilibili-fetcher)", "Referer": "https://www.bilibili.com/"}
    if cookie:
        headers["Cookie"] = cookie
    where = urlsplit(address).netloc
    try:
        with build_opener(NoRedirects).open(Request(address, headers=headers), timeout=SECONDS) as answer:
            data = answer.read(MAX_ANSWER + 1)
    except HTTPError as error:
        raise Failure(f"{where} answered with {error.code} {error.reason}") from None
    except (URLError, OSError) as error:
        raise Failure(f"{where} cannot be reached: {getattr(error, 'reason', error)}") from None
    if len(data) > MAX_ANSWER:
        raise Failure(f"{where} answered with more than {MAX_ANSWER >> 20} MB")
    try:
        return json.loads(data)
    except ValueError:
        raise Failure(f"{where} answered with something else than JSON") from None


def ask(base, path, cookie, **parameters):
    """Return the `data` of an answer of the API."""
    answer = fetch(f"{base.rstrip('/')}{path}?{urlencode(parameters)}", cookie)
    if not isinstance(answer, dict) or answer.get("code") != 0 or not isinstance(answer.get("data"), dict):
        said = answer.get("message") if isinstance(answer, dict) else None
        raise Failure(f"Bilibili refused: {said or 'it gave no reason'}")
    return answer["data"]


def subtitles(inputs, base, cookie):
    """Return title and subtitles of the video that is asked for."""
    bvid, part = video_of(inputs["url"])
    progress(0.1, f"looking for {bvid}")
    video = ask(base, "/x/web-interface/view", cookie, bvid=bvid)
    pages = video.get("pages") or [{"cid": video.get("cid")}]
    if part > len(pages):
        raise Failure(f"{bvid} has {len(pages)} parts; there is no part {part}")
    progress(0.4, "looking for subtitles")
    player = ask(base, "/x/player/wbi/v2", cookie, bvid=bvid, cid=pages[part - 1]["cid"])
    tracks = (player.get("subtitle") or {}).get("subtitles") or []
    found = {track["lan"]: track["subtitle_url"] for track in tracks if track.get("subtitle_url")}
    if not found:
        hint = "" if cookie else "; many are shown only with the cookie of a login (setting bilibiliCookie)"
        raise Failure(f"{bvid} has no subtitles that can be seen{hint}")
    language = inputs.get("language") or next(iter(found))
    if language not in found:
        raise Failure(f"{bvid} has no subtitles in {language}; there is {', '.join(found)}")
    progress(0.7, f"getting the subtitles in {language}")
    answer = fetch(urljoin(base, found[language]))
    if not isinstance(answer, dict) or not isinstance(answer.get("body"), list):
        raise Failure(f"the subtitles of {bvid} in {language} are in a form that is not known")
    lines = [{"from": line["from"], "to": line["to"], "content": line["content"]} for line in answer["body"]]
    return {
        "bvid": bvid,
        "title": video.get("title", ""),
        "language": language,
        "languages": list(found),
        "text": "\n".join(line["content"] for line in lines),
        "lines": lines,
    }


if __name__ == "__main__":
    settings = [os.environ.get(f"TAVERN_CONFIG_{name}", "") for name in ("API_BASE", "BILIBILI_COOKIE")]
    try:
        print(json.dumps(subtitles(json.load(sys.stdin), *settings), ensure_ascii=False))
    except Failure as failure:
        sys.exit(str(failure))
