"""Tasks with music."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_envs.envs.appworld.tasks.family import (
    Draw,
    NoTask,
    Plan,
    all_pages,
    complete,
    family,
    full_name,
    login,
    one_contact,
    read_note,
)
from agent_envs.envs.appworld.tasks.goals import Goal

MUSIC = "access_token=token_spotify"
GENRES = ("pop", "folk", "jazz", "electronic", "rock", "classical", "hip hop")


def _songs(draw: Draw, table: str) -> list[Mapping[str, Any]]:
    found = [draw.db.get("spotify.songs", row["song_id"]) for row in draw.mine(table)]
    return [row for row in found if row is not None]


def _playlist(draw: Draw) -> Mapping[str, Any]:
    rows = draw.mine("spotify.playlists")
    titles = [row["title"] for row in rows]
    return draw.pick([row for row in rows if titles.count(row["title"]) == 1])  # type: ignore[no-any-return]


def _open(title: str) -> str:
    """Code that reads one of the person's playlists."""
    return (
        all_pages("playlists", f"apis.spotify.show_playlist_library({MUSIC}")
        + f"\nnumber = [p['playlist_id'] for p in playlists if p['title'] == {title!r}][0]\n"
        f"playlist = apis.spotify.show_playlist({MUSIC}, playlist_id=number)\nprint(playlist['title'])"
    )


@family("spotify", difficulty=1, phrases=(
    "How many of the songs that I like on Spotify are {genre}?",
    "Count my liked Spotify songs of the genre {genre}.",
    "Among my liked songs on Spotify, how many belong to {genre}?",
))  # fmt: skip
def liked_genre(draw: Draw) -> Plan:
    songs, genre = _songs(draw, "spotify.liked_songs"), draw.pick(GENRES)
    count = sum(song["genre"] == genre for song in songs)
    if not 0 < count < len(songs):
        raise NoTask
    return Plan(
        {"genre": genre},
        Goal(answer=count),
        (
            login("spotify"),
            all_pages("songs", f"apis.spotify.show_liked_songs({MUSIC}")
            + f"\ncount = sum(song['genre'] == {genre!r} for song in songs)\nprint(count)",
            complete("count"),
        ),
    )


@family("spotify", difficulty=2, phrases=(
    "Like every {genre} song of my Spotify library that I don't like yet.",
    "All {genre} songs in my library on Spotify should have my like.",
    "In my Spotify library, give a like to each {genre} song that has none from me.",
))  # fmt: skip
def like_library(draw: Draw) -> Plan:
    genre = draw.pick(GENRES)
    liked = {song["id"] for song in _songs(draw, "spotify.liked_songs")}
    theirs = [
        song["id"] for song in _songs(draw, "spotify.library_songs") if song["genre"] == genre
    ]
    missing = [number for number in theirs if number not in liked]
    if not 0 < len(missing) < len(theirs):
        raise NoTask
    new = [("spotify.liked_songs", {"owner_id": draw.me, "song_id": number}) for number in missing]
    return Plan(
        {"genre": genre},
        Goal(inserted=new),
        (
            login("spotify"),
            all_pages("liked", f"apis.spotify.show_liked_songs({MUSIC}")
            + "\nknown = {song['song_id'] for song in liked}",
            all_pages("songs", f"apis.spotify.show_song_library({MUSIC}"),
            "for song in songs:\n"
            f"    if song['genre'] == {genre!r} and song['song_id'] not in known:\n"
            f"        apis.spotify.like_song({MUSIC}, song_id=song['song_id'])",
            complete(),
        ),
    )


@family("spotify", difficulty=2, phrases=(
    "Make a private Spotify playlist {title!r} with the {count} highest rated songs of my library.",
    "Put the {count} best rated songs of my Spotify library into a new private playlist named {title!r}.",
    "I want a new playlist {title!r} on Spotify, not public: the top {count} of my library by rating.",
))  # fmt: skip
def top_playlist(draw: Draw) -> Plan:
    title, count = (
        draw.pick(("The best of mine", "Top shelf", "Only the good ones")),
        draw.rng.randrange(3, 7),
    )
    ranked = sorted(_songs(draw, "spotify.library_songs"), key=lambda song: -song["rating"])
    if len(ranked) <= count or ranked[count - 1]["rating"] == ranked[count]["rating"]:
        raise NoTask
    wanted = sorted(song["id"] for song in ranked[:count])
    return Plan(
        {"title": title, "count": count},
        Goal(inserted=[("spotify.playlists", {
            "owner_id": draw.me, "title": title, "public": False,
            "song_ids": lambda found: sorted(found) == wanted,
        })]),
        (
            login("spotify"),
            all_pages("songs", f"apis.spotify.show_song_library({MUSIC}")
            + f"\ntop = sorted(songs, key=lambda song: -song['rating'])[:{count}]\nprint([s['rating'] for s in top])",
            f"number = apis.spotify.create_playlist({MUSIC}, title={title!r}, public=False)['playlist_id']\n"
            "for song in top:\n"
            f"    apis.spotify.add_song_to_playlist({MUSIC}, playlist_id=number, song_id=song['song_id'])",
            complete(),
        ),
    )  # fmt: skip


@family("spotify", difficulty=2, phrases=(
    "How many minutes does my Spotify playlist {title!r} last? Round to whole minutes.",
    "What is the length of my playlist {title!r} on Spotify, rounded to full minutes?",
    "Add up the durations in my Spotify playlist {title!r} and tell me the whole minutes, rounded.",
))  # fmt: skip
def playlist_length(draw: Draw) -> Plan:
    playlist = _playlist(draw)
    seconds = 0
    for number in playlist["song_ids"]:
        song = draw.db.get("spotify.songs", number)
        assert song is not None  # playlists hold songs of the world
        seconds += song["duration"]
    if len(playlist["song_ids"]) < 3 or seconds % 60 == 30:
        raise NoTask
    return Plan(
        {"title": playlist["title"]},
        Goal(answer=round(seconds / 60)),
        (
            login("spotify"),
            _open(playlist["title"]),
            "minutes = round(sum(song['duration'] for song in playlist['songs']) / 60)\nprint(minutes)",
            complete("minutes"),
        ),
    )


@family("spotify", difficulty=1, phrases=(
    "Follow {artist} on Spotify.",
    "I want to follow the artist {artist} on Spotify.",
    "Please make me a follower of {artist} on Spotify.",
))  # fmt: skip
def follow(draw: Draw) -> Plan:
    known = {row["artist_id"] for row in draw.mine("spotify.followed_artists")}
    artist = draw.pick([row for row in draw.db.rows("spotify.artists") if row["id"] not in known])
    return Plan(
        {"artist": artist["name"]},
        Goal(
            inserted=[
                ("spotify.followed_artists", {"owner_id": draw.me, "artist_id": artist["id"]})
            ]
        ),
        (
            login("spotify"),
            f"found = apis.spotify.search_artists(query={artist['name']!r}, page_limit=20)\n"
            f"artist = [a for a in found if a['name'] == {artist['name']!r}][0]\nprint(artist)",
            f"apis.spotify.follow_artist({MUSIC}, artist_id=artist['artist_id'])",
            complete(),
        ),
    )


@family("spotify", difficulty=2, phrases=(
    "Unfollow every artist on Spotify whose genre is not {genre}.",
    "On Spotify I only want to follow {genre} artists. Unfollow the others.",
    "Of the artists that I follow on Spotify, keep those of {genre} and unfollow the rest.",
))  # fmt: skip
def unfollow_others(draw: Draw) -> Plan:
    genre = draw.pick(GENRES)
    followed = draw.mine("spotify.followed_artists")
    kinds = {row["id"]: draw.db.get("spotify.artists", row["artist_id"]) for row in followed}
    gone = [
        number
        for number, artist in kinds.items()
        if artist is not None and artist["genre"] != genre
    ]
    if not 0 < len(gone) < len(followed):
        raise NoTask
    return Plan(
        {"genre": genre},
        Goal(deleted=[("spotify.followed_artists", number) for number in gone]),
        (
            login("spotify"),
            all_pages("artists", f"apis.spotify.show_followed_artists({MUSIC}")
            + "\nfor artist in artists:\n"
            f"    if artist['genre'] != {genre!r}:\n"
            f"        apis.spotify.unfollow_artist({MUSIC}, artist_id=artist['artist_id'])",
            complete(),
        ),
    )


@family("spotify", "simple_note", difficulty=3, phrases=(
    "Make a private Spotify playlist {title!r} with exactly the songs that my note {title!r} lists.",
    "My note {title!r} names songs. Put them all into a new private playlist of that name on Spotify.",
    "Turn the note {title!r} into a private Spotify playlist with the same title and songs.",
))  # fmt: skip
def note_playlist(draw: Draw) -> Plan:
    note = draw.pick(
        [row for row in draw.mine("simple_note.notes") if row["title"].startswith("Songs for ")]
    )
    titles = [line.removeprefix("- ") for line in note["content"].splitlines()]
    songs = [draw.db.where("spotify.songs", title=title) for title in titles]
    if not titles or any(len(found) != 1 for found in songs):
        raise NoTask
    wanted = sorted(found[0]["id"] for found in songs)
    title = note["title"]
    return Plan(
        {"title": title},
        Goal(inserted=[("spotify.playlists", {
            "owner_id": draw.me, "title": title, "public": False,
            "song_ids": lambda found: sorted(found) == wanted,
        })]),
        (
            login("simple_note"),
            read_note(title),
            login("spotify"),
            f"number = apis.spotify.create_playlist({MUSIC}, title={title!r}, public=False)['playlist_id']\n"
            "for line in note['content'].splitlines():\n"
            "    name = line.removeprefix('- ')\n"
            "    found = apis.spotify.search_songs(query=name, page_limit=20)\n"
            "    song = [s for s in found if s['title'] == name][0]\n"
            f"    apis.spotify.add_song_to_playlist({MUSIC}, playlist_id=number, song_id=song['song_id'])",
            complete(),
        ),
    )  # fmt: skip


@family("spotify", "phone", difficulty=3, phrases=(
    "Text {name} the title of the longest song in my Spotify playlist {title!r}, just the title.",
    "Which song of my Spotify playlist {title!r} lasts longest? Send its title, nothing else, to {name} by text message.",
    "Send {name} a text message with only the title of the longest song of {title!r}, a playlist of mine on Spotify.",
))  # fmt: skip
def text_longest(draw: Draw) -> Plan:
    playlist = _playlist(draw)
    person = draw.pick([p for kind in ("friend", "sibling") for p in draw.related(kind)])
    songs = [draw.db.get("spotify.songs", number) for number in playlist["song_ids"]]
    ranked = sorted(
        (song for song in songs if song is not None), key=lambda song: -song["duration"]
    )
    if len(ranked) < 3 or ranked[0]["duration"] == ranked[1]["duration"]:
        raise NoTask
    sent = {"sender_id": draw.me, "receiver_id": person["id"], "text": ranked[0]["title"]}
    return Plan(
        {"name": full_name(person), "title": playlist["title"]},
        Goal(inserted=[("phone.text_messages", sent)]),
        (
            login("spotify"),
            _open(playlist["title"])
            + "\nlongest = max(playlist['songs'], key=lambda song: song['duration'])",
            login("phone"),
            one_contact(full_name(person)),
            "apis.phone.send_text_message(access_token=token_phone, phone_number=contact['phone_number'], "
            "text=longest['title'])",
            complete(),
        ),
    )
