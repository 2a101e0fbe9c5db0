"""Music: songs, albums, artists, playlists, likes, a library, reviews and a player."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from agent_envs.envs.appworld.api import Answer, App, Context, check
from agent_envs.envs.appworld.fields import (
    DATE,
    DATETIME,
    EMAIL,
    Body,
    Date,
    Id,
    Maybe,
    Range,
    Stars,
    Text,
    View,
    created,
)
from agent_envs.envs.appworld.store import Row

if TYPE_CHECKING:
    from agent_envs.envs.appworld.build import Builder

SPOTIFY = App("spotify", "Listen to music: songs, albums, artists, playlists, likes and a queue.")
SPOTIFY.accounts(
    View("", first_name=str, last_name=str, email=EMAIL, premium=bool, registered_on=DATE)
)
ARTIST = View("artist", name=str, genre=str, follower_count=int)
ALBUM = View("album", title=str, artist_id=int, artist_name=str, genre=str, release_date=DATE)
SONG = View(
    "song", title=str, album_id=int, album_title=str, artist_id=int, artist_name=str, genre=str,
    duration=int, play_count=int, rating=float, release_date=DATE,
)  # fmt: skip
PLAYLIST = View(
    "playlist", title=str, owner_name=str, public=bool, song_ids=[int], created_at=DATETIME
)
REVIEW = View("review", song_id=int, author_name=str, rating=int, text=str, created_at=DATETIME)
PLAYER = {
    "song": Maybe(SONG),
    "queue_position": int,
    "queue_length": int,
    "playing": bool,
    "volume": int,
}
BY_SONG = ("title", "duration", "play_count", "rating", "release_date")
MARKS = ("liked_songs", "liked_albums", "followed_artists", "library_songs")
GENRES = "pop|folk|jazz|electronic|rock|classical|hip hop".split("|")
FIRST = """Amber Broken Crystal Distant Electric Fading Golden Hollow Infinite Jade Kindred Lunar
Midnight Northern Open Paper Quiet Restless Silver Tidal Velvet Winter""".split()
SECOND = """Anchors Bridges Circuits Dreams Echoes Feathers Gardens Horizons Islands Journeys Kites
Lanterns Mirrors Nights Orchards Parades Rivers Shadows Trains Umbrellas Voices Windows""".split()
BANDS = """Paper Foxes|Lina Sorrel|The Slow Engines|Cask & Coil|Ottoline Reeve|Hexagon Hill
Marsh Lights|Juno Parrish|Bright Cellar|The Ninth Ferry|Tobias Wren|Glass Orchard|Nadia Vale
Copper Antlers|Static Bloom|Willa Dray|The Long Tuesdays|Sable Choir""".replace("\n", "|").split(
    "|"
)


@SPOTIFY.seeding
def seed(b: Builder) -> None:
    """spotify.artists, .albums (artist_id), .songs (album_id, artist_id, and their names),
    .playlists (owner_id, title, public, song_ids), .reviews (owner_id, song_id, rating, text),
    .accounts (queue: song ids, position, playing, volume) and the marks .liked_songs and
    .library_songs (owner_id, song_id), .liked_albums (album_id), .followed_artists (artist_id)."""
    _seed_music(b)
    songs = list(b.table("spotify.songs"))
    for table in ("playlists", "reviews", *MARKS):
        b.table(f"spotify.{table}")
    for account in b.accounts("spotify", share=0.7):
        me = account["id"]
        rng = b.rng("spotify", f"listener {me}")
        b.table("spotify.accounts")[me] = {
            **account, "premium": rng.random() < 0.5, "queue": rng.sample(songs, rng.randint(3, 8)),
            "position": 0, "playing": False, "volume": rng.randint(2, 9) * 10,
        }  # fmt: skip
        library = rng.sample(songs, rng.randint(18, 30))
        for table, field, ids in (
            ("library_songs", "song_id", library),
            ("liked_songs", "song_id", rng.sample(library, 8) + rng.sample(songs, 3)),
            ("liked_albums", "album_id", rng.sample(list(b.table("spotify.albums")), 5)),
            ("followed_artists", "artist_id", rng.sample(list(b.table("spotify.artists")), 5)),
        ):
            for number in sorted(set(ids)):
                when = b.ago(rng, 1, 350)
                b.add(f"spotify.{table}", owner_id=me, **{field: number}, created_at=when)
        moods = rng.sample(
            "Morning run|Deep work|Sunday kitchen|Road trip|Wind down|Gym".split("|"), 4
        )
        for title in moods:
            b.add(
                "spotify.playlists", owner_id=me, title=title, public=rng.random() < 0.5,
                song_ids=rng.sample(songs, rng.randint(4, 14)), created_at=b.ago(rng, 1, 360),
            )  # fmt: skip
        for song in sorted(rng.sample(library, 4)):
            stars = rng.randint(1, 5)
            b.add(
                "spotify.reviews", owner_id=me, song_id=song, rating=stars,
                text=("Not for me.", "Weak.", "Fine.", "Good one.", "A favourite.")[stars - 1],
                created_at=b.ago(rng, 1, 300),
            )  # fmt: skip


def _seed_music(b: Builder) -> None:
    rng = b.rng("spotify", "music")
    titles = [f"{one} {two}" for one in FIRST for two in SECOND]
    rng.shuffle(titles)
    for name in rng.sample(BANDS, len(BANDS)):
        artist = b.add(
            "spotify.artists", name=name, genre=rng.choice(GENRES),
            follower_count=rng.randint(100, 90_000),
        )  # fmt: skip
        for _ in range(rng.randint(2, 3)):
            album = b.add(
                "spotify.albums", title=titles.pop(), artist_id=artist["id"], artist_name=name,
                genre=artist["genre"],
                release_date=f"{rng.randint(2005, 2023)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
            )  # fmt: skip
            for _ in range(rng.randint(4, 7)):
                b.add(
                    "spotify.songs", title=titles.pop(), album_id=album["id"],
                    album_title=album["title"], artist_id=artist["id"], artist_name=name,
                    genre=album["genre"], duration=rng.randint(120, 420),
                    play_count=rng.randint(50, 99_999), rating=rng.randint(20, 50) / 10,
                    release_date=album["release_date"],
                )  # fmt: skip


def _songs(ctx: Context, numbers: Iterable[int]) -> list[Answer]:
    return [SONG(ctx.find("songs", number)) for number in numbers]


def _marked(ctx: Context, table: str, field: str) -> list[int]:
    return [row[field] for row in ctx.mine(table)]


def _mark(ctx: Context, table: str, field: str, number: int, wanted: bool, told: str) -> Answer:
    """Sets or takes away one of your marks on a song, album or artist."""
    thing = field.removesuffix("_id")
    ctx.find(f"{thing}s", number)
    rows = ctx.mine(table, **{field: number})
    if wanted:
        check(not rows, f"The {thing} with id {number} is already {told}.")
        ctx.insert(table, owner_id=ctx.person, **{field: number}, created_at=ctx.now)
    else:
        check(bool(rows), f"The {thing} with id {number} is not {told}.")
        ctx.delete(table, rows[0]["id"])
    return {"message": f"The {thing} is {'now' if wanted else 'no longer'} {told}."}


@SPOTIFY.api(
    "GET", "/songs", auth=False, returns=[SONG], search=("title", "artist_name", "album_title"),
    sort=BY_SONG,
)  # fmt: skip
def search_songs(
    ctx: Context,
    *,
    artist_id: Id | None = None,
    genre: Text | None = None,
    released_after: Date | None = None,
    released_before: Date | None = None,
) -> Iterable[Answer]:
    """Search all songs.

    artist_id: only songs of this artist
    genre: only songs of this genre
    released_after: only songs of this day or later
    released_before: only songs of this day or earlier
    """
    for row in ctx.rows("songs"):
        if (
            artist_id in (None, row["artist_id"])
            and genre in (None, row["genre"])
            and (released_after or "") <= row["release_date"] <= (released_before or "9999")
        ):
            yield SONG(row)


@SPOTIFY.api("GET", "/songs/{song_id}", auth=False, returns=SONG)
def show_song(ctx: Context, *, song_id: Id) -> Answer:
    """Show one song.

    song_id: the song's id
    """
    return SONG(ctx.find("songs", song_id))


@SPOTIFY.api(
    "GET", "/albums", auth=False, returns=[ALBUM], search=("title", "artist_name"),
    sort=("title", "release_date"),
)  # fmt: skip
def search_albums(
    ctx: Context, *, artist_id: Id | None = None, genre: Text | None = None
) -> Iterable[Answer]:
    """Search all albums.

    artist_id: only albums of this artist
    genre: only albums of this genre
    """
    for row in ctx.rows("albums"):
        if artist_id in (None, row["artist_id"]) and genre in (None, row["genre"]):
            yield ALBUM(row)


@SPOTIFY.api("GET", "/albums/{album_id}", auth=False, returns=ALBUM.plus(song_ids=[int]))
def show_album(ctx: Context, *, album_id: Id) -> Answer:
    """Show an album with its songs.

    album_id: the album's id
    """
    songs = [row["id"] for row in ctx.where("songs", album_id=album_id)]
    return {**ALBUM(ctx.find("albums", album_id)), "song_ids": songs}


@SPOTIFY.api(
    "GET", "/artists", auth=False, returns=[ARTIST], search=("name", "genre"),
    sort=("name", "follower_count"),
)  # fmt: skip
def search_artists(ctx: Context, *, genre: Text | None = None) -> Iterable[Answer]:
    """Search all artists.

    genre: only artists of this genre
    """
    return (ARTIST(row) for row in ctx.rows("artists") if genre in (None, row["genre"]))


@SPOTIFY.api("GET", "/artists/{artist_id}", auth=False, returns=ARTIST.plus(album_ids=[int]))
def show_artist(ctx: Context, *, artist_id: Id) -> Answer:
    """Show an artist with the albums.

    artist_id: the artist's id
    """
    albums = [row["id"] for row in ctx.where("albums", artist_id=artist_id)]
    return {**ARTIST(ctx.find("artists", artist_id)), "album_ids": albums}


@SPOTIFY.api("GET", "/library/songs", returns=[SONG], search=("title", "artist_name"), sort=BY_SONG)
def show_song_library(ctx: Context) -> Answer:
    """List the songs in your library."""
    return _songs(ctx, _marked(ctx, "library_songs", "song_id"))


@SPOTIFY.api("POST", "/library/songs")
def add_song_to_library(ctx: Context, *, song_id: Id) -> Answer:
    """Add a song to your library.

    song_id: the song's id
    """
    return _mark(ctx, "library_songs", "song_id", song_id, True, "in your library")


@SPOTIFY.api("DELETE", "/library/songs")
def remove_song_from_library(ctx: Context, *, song_id: Id) -> Answer:
    """Take a song out of your library.

    song_id: the song's id
    """
    return _mark(ctx, "library_songs", "song_id", song_id, False, "in your library")


@SPOTIFY.api("GET", "/likes/songs", returns=[SONG], search=("title", "artist_name"), sort=BY_SONG)
def show_liked_songs(ctx: Context) -> Answer:
    """List the songs that you like."""
    return _songs(ctx, _marked(ctx, "liked_songs", "song_id"))


@SPOTIFY.api("POST", "/likes/songs")
def like_song(ctx: Context, *, song_id: Id) -> Answer:
    """Like a song, for all to see.

    song_id: the song's id
    """
    return _mark(ctx, "liked_songs", "song_id", song_id, True, "liked")


@SPOTIFY.api("DELETE", "/likes/songs")
def unlike_song(ctx: Context, *, song_id: Id) -> Answer:
    """Take your like from a song.

    song_id: the song's id
    """
    return _mark(ctx, "liked_songs", "song_id", song_id, False, "liked")


@SPOTIFY.api(
    "GET", "/likes/albums", returns=[ALBUM], search=("title", "artist_name"),
    sort=("title", "release_date"),
)  # fmt: skip
def show_liked_albums(ctx: Context) -> Iterable[Answer]:
    """List the albums that you like."""
    return (ALBUM(ctx.find("albums", i)) for i in _marked(ctx, "liked_albums", "album_id"))


@SPOTIFY.api("POST", "/likes/albums")
def like_album(ctx: Context, *, album_id: Id) -> Answer:
    """Like an album, for all to see.

    album_id: the album's id
    """
    return _mark(ctx, "liked_albums", "album_id", album_id, True, "liked")


@SPOTIFY.api("DELETE", "/likes/albums")
def unlike_album(ctx: Context, *, album_id: Id) -> Answer:
    """Take your like from an album.

    album_id: the album's id
    """
    return _mark(ctx, "liked_albums", "album_id", album_id, False, "liked")


@SPOTIFY.api(
    "GET", "/following", returns=[ARTIST], search=("name", "genre"),
    sort=("name", "follower_count"),
)  # fmt: skip
def show_followed_artists(ctx: Context) -> Iterable[Answer]:
    """List the artists that you follow."""
    return (ARTIST(ctx.find("artists", i)) for i in _marked(ctx, "followed_artists", "artist_id"))


@SPOTIFY.api("POST", "/following")
def follow_artist(ctx: Context, *, artist_id: Id) -> Answer:
    """Follow an artist.

    artist_id: the artist's id
    """
    return _mark(ctx, "followed_artists", "artist_id", artist_id, True, "followed")


@SPOTIFY.api("DELETE", "/following")
def unfollow_artist(ctx: Context, *, artist_id: Id) -> Answer:
    """Follow an artist no longer.

    artist_id: the artist's id
    """
    return _mark(ctx, "followed_artists", "artist_id", artist_id, False, "followed")


def _playlist(ctx: Context, row: Row) -> Answer:
    return PLAYLIST(row, owner_name=ctx.name_of(row["owner_id"]))


@SPOTIFY.api(
    "GET", "/library/playlists", returns=[PLAYLIST], search=("title",), sort=("title", "created_at")
)
def show_playlist_library(ctx: Context, *, public: bool | None = None) -> Iterable[Answer]:
    """List your playlists.

    public: only those that all can see, or only you
    """
    return (_playlist(ctx, r) for r in ctx.mine("playlists") if public in (None, r["public"]))


@SPOTIFY.api(
    "GET", "/playlists", returns=[PLAYLIST], search=("title", "owner_name"),
    sort=("title", "created_at"),
)  # fmt: skip
def search_public_playlists(ctx: Context) -> Iterable[Answer]:
    """Search everybody's public playlists."""
    return (_playlist(ctx, row) for row in ctx.rows("playlists") if row["public"])


@SPOTIFY.api("GET", "/playlists/{playlist_id}", returns=PLAYLIST.plus(songs=[SONG]))
def show_playlist(ctx: Context, *, playlist_id: Id) -> Answer:
    """Show a playlist with its songs: one of yours or a public one.

    playlist_id: the playlist's id
    """
    row = ctx.find("playlists", playlist_id)
    if not row["public"]:
        ctx.own("playlists", playlist_id)
    return {**_playlist(ctx, row), "songs": _songs(ctx, row["song_ids"])}


@SPOTIFY.api("POST", "/playlists", returns=created("playlist"))
def create_playlist(ctx: Context, *, title: Text, public: bool = False) -> Answer:
    """Make an empty playlist.

    title: its title
    public: whether all can see it
    """
    row = ctx.insert(
        "playlists", owner_id=ctx.person, title=title, public=public, song_ids=[],
        created_at=ctx.now,
    )  # fmt: skip
    return {"message": "Playlist created.", "playlist_id": row["id"]}


@SPOTIFY.api("PATCH", "/playlists/{playlist_id}")
def update_playlist(
    ctx: Context, *, playlist_id: Id, title: Text | None = None, public: bool | None = None
) -> Answer:
    """Change a playlist's title or who can see it.

    playlist_id: the playlist's id
    title: the new title
    public: whether all can see it
    """
    ctx.own("playlists", playlist_id)
    ctx.update("playlists", playlist_id, title=title, public=public)
    return {"message": "Playlist updated."}


@SPOTIFY.api("DELETE", "/playlists/{playlist_id}")
def delete_playlist(ctx: Context, *, playlist_id: Id) -> Answer:
    """Delete a playlist.

    playlist_id: the playlist's id
    """
    ctx.own("playlists", playlist_id)
    ctx.delete("playlists", playlist_id)
    return {"message": "Playlist deleted."}


@SPOTIFY.api("POST", "/playlists/{playlist_id}/songs")
def add_song_to_playlist(ctx: Context, *, playlist_id: Id, song_id: Id) -> Answer:
    """Put a song at the end of a playlist.

    playlist_id: the playlist's id
    song_id: the song's id
    """
    songs = ctx.own("playlists", playlist_id)["song_ids"]
    ctx.find("songs", song_id)
    check(song_id not in songs, "The song is already in the playlist.")
    ctx.update("playlists", playlist_id, song_ids=[*songs, song_id])
    return {"message": "Song added to the playlist."}


@SPOTIFY.api("DELETE", "/playlists/{playlist_id}/songs")
def remove_song_from_playlist(ctx: Context, *, playlist_id: Id, song_id: Id) -> Answer:
    """Take a song out of a playlist.

    playlist_id: the playlist's id
    song_id: the song's id
    """
    songs = ctx.own("playlists", playlist_id)["song_ids"]
    check(song_id in songs, "The song is not in the playlist.")
    ctx.update("playlists", playlist_id, song_ids=[i for i in songs if i != song_id])
    return {"message": "Song removed from the playlist."}


def _review(ctx: Context, row: Row) -> Answer:
    return REVIEW(row, author_name=ctx.name_of(row["owner_id"]))


@SPOTIFY.api("GET", "/songs/{song_id}/reviews", returns=[REVIEW], sort=("rating", "created_at"))
def show_song_reviews(ctx: Context, *, song_id: Id, mine_only: bool = False) -> Iterable[Answer]:
    """List what people wrote about a song.

    song_id: the song's id
    mine_only: only what you wrote
    """
    ctx.find("songs", song_id)
    for row in ctx.where("reviews", song_id=song_id):
        if not mine_only or row["owner_id"] == ctx.person:
            yield _review(ctx, row)


@SPOTIFY.api("POST", "/songs/{song_id}/reviews", returns=created("review"))
def review_song(ctx: Context, *, song_id: Id, rating: Stars, text: Body = "") -> Answer:
    """Rate a song; you can do it once a song.

    song_id: the song's id
    rating: stars
    text: what you think of it
    """
    ctx.find("songs", song_id)
    check(not ctx.mine("reviews", song_id=song_id), "You have already reviewed this song.")
    row = ctx.insert(
        "reviews",
        owner_id=ctx.person,
        song_id=song_id,
        rating=rating,
        text=text,
        created_at=ctx.now,
    )
    return {"message": "Review added.", "review_id": row["id"]}


@SPOTIFY.api("PATCH", "/reviews/{review_id}")
def update_song_review(
    ctx: Context, *, review_id: Id, rating: Stars | None = None, text: Body | None = None
) -> Answer:
    """Change a review of yours.

    review_id: the review's id
    rating: stars
    text: what you think of it
    """
    ctx.own("reviews", review_id)
    ctx.update("reviews", review_id, rating=rating, text=text)
    return {"message": "Review updated."}


@SPOTIFY.api("DELETE", "/reviews/{review_id}")
def delete_song_review(ctx: Context, *, review_id: Id) -> Answer:
    """Delete a review of yours.

    review_id: the review's id
    """
    ctx.own("reviews", review_id)
    ctx.delete("reviews", review_id)
    return {"message": "Review deleted."}


def _set_player(ctx: Context, **changes: Any) -> Answer:
    """The player's new state."""
    row = ctx.update("accounts", ctx.person, **changes) if changes else None
    row = row or ctx.find("accounts", ctx.person)
    song = SONG(ctx.find("songs", row["queue"][row["position"]])) if row["queue"] else None
    return {
        "song": song,
        "queue_position": row["position"],
        "queue_length": len(row["queue"]),
        "playing": row["playing"],
        "volume": row["volume"],
    }


@SPOTIFY.api("GET", "/player", returns=PLAYER)
def show_player(ctx: Context) -> Answer:
    """Show the current song, its place in the queue (from 0), and the volume."""
    return _set_player(ctx)


@SPOTIFY.api("GET", "/player/queue", returns=[SONG])
def show_queue(ctx: Context) -> Answer:
    """List the songs of the queue, in order."""
    return _songs(ctx, ctx.find("accounts", ctx.person)["queue"])


@SPOTIFY.api("POST", "/player/queue", returns=PLAYER)
def add_to_queue(ctx: Context, *, song_id: Id) -> Answer:
    """Put a song at the end of the queue.

    song_id: the song's id
    """
    ctx.find("songs", song_id)
    queue = ctx.find("accounts", ctx.person)["queue"]
    check(len(queue) < 200, "The queue is full.")
    return _set_player(ctx, queue=[*queue, song_id])


@SPOTIFY.api("DELETE", "/player/queue", returns=PLAYER)
def clear_queue(ctx: Context) -> Answer:
    """Empty the queue, which stops the music."""
    return _set_player(ctx, queue=[], position=0, playing=False)


@SPOTIFY.api("POST", "/player/play", returns=PLAYER)
def play_music(
    ctx: Context,
    *,
    song_id: Id | None = None,
    album_id: Id | None = None,
    playlist_id: Id | None = None,
) -> Answer:
    """Play a song, an album or a playlist (one of the three), or go on with the queue.

    song_id: the song to play
    album_id: the album to play
    playlist_id: the playlist to play
    """
    given = [value for value in (song_id, album_id, playlist_id) if value is not None]
    check(len(given) <= 1, "Give at most one of song_id, album_id and playlist_id.")
    queue = ctx.find("accounts", ctx.person)["queue"]
    if song_id is not None:
        queue = [ctx.find("songs", song_id)["id"]]
    elif album_id is not None:
        queue = show_album(ctx, album_id=album_id)["song_ids"]
    elif playlist_id is not None:
        queue = show_playlist(ctx, playlist_id=playlist_id)["song_ids"]
    check(bool(queue), "There is nothing to play.")
    return _set_player(
        ctx, playing=True, **({"queue": list(queue), "position": 0} if given else {})
    )


@SPOTIFY.api("POST", "/player/pause", returns=PLAYER)
def pause_music(ctx: Context) -> Answer:
    """Stop the music; the place in the queue stays."""
    return _set_player(ctx, playing=False)


@SPOTIFY.api("POST", "/player/skip", returns=PLAYER)
def skip_songs(ctx: Context, *, steps: Annotated[int, Range(-100, 100)] = 1) -> Answer:
    """Go forth (or back) in the queue.

    steps: by how many songs; below 0 goes back
    """
    row = ctx.find("accounts", ctx.person)
    at = row["position"] + steps
    check(0 <= at < len(row["queue"]), "The queue ends before that song.")
    return _set_player(ctx, position=at)


@SPOTIFY.api("POST", "/player/volume", returns=PLAYER)
def set_volume(ctx: Context, *, volume: Annotated[int, Range(0, 100)]) -> Answer:
    """Set how loud the music is.

    volume: from 0 to 100
    """
    return _set_player(ctx, volume=volume)
