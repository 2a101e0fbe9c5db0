"""Word lists of the made-up world."""

from __future__ import annotations

FIRST = (
    "Alda Bero Cilla Dorin Edda Falk Greta Hanno Ilse Joren Katla Ludo Mirja Nils Odile Perrin Quirin "
    "Runa Sanna Tomas Ulva Viggo Wanda Yorick Zelda Anselm Britta Corvin Dagny Emeric Flora Gustav Hedda "
    "Ivo Jutta Klaas Lenka Matis Nora Oskar Petra Rasmus Signe Tilda Urban Vera Walda Yvo"
).split()
LAST = (
    "Voss Kern Reld Halvar Brandt Osterby Lindqvist Marek Tolland Winter Ashcombe Fenwick Grell Harrow "
    "Imhoff Jansky Kestrel Larkin Molnar Nyberg Orsolo Pell Quist Rademaker Selwyn Tarrant Ullman Varga "
    "Westrup Yarrow Zeller Abel Birk Castell Drost Eckhart Fabri Gale Hollis Ingram Jessen Kolb Lorne "
    "Mabry Norell Oakes Prior Rusk Stern Thorne Udall Vance Wyler Ames Bright Crane Dale Elgar Frost "
    "Glass"
).split()
TOWN_HEADS = (
    "Ald Bren Cor Dun Esk Fal Gar Hol Ister Kel Lang Mor Nor Ost Pen Quar Raven Sal Tarn Ulm Ver West Yar"
    " Zell Ash Birch Copper Deer Elm Fox"
).split()
TOWN_TAILS = "ford wick mere holm stead bury gate haven dale marsh crest well".split()
RIVERS = (
    "Arn Bourne Calder Drim Eske Fosse Grane Hild Issel Jarn Kennet Lune Mede Nadder Orre Piddle Rill "
    "Sark Tove Ure Vire Wend Yeo Zenn"
).split()
PROVINCES = "Velland Ostmark Carrow Silvany Thule Brennia Marland Halden Norvia Estwold".split()
PRODUCTS = (
    "clocks glass carpets cheese lanterns bells paper salt boats violins bricks tiles gloves soap honey "
    "umbrellas"
).split()
SIGHTS = (
    "a leaning clock tower; a covered wooden bridge; a salt market; a botanical garden; a lighthouse of "
    "black stone; a ruined abbey; a museum of maps; a winter fair; an old mint; a row of windmills; a "
    "tidal harbour; a labyrinth of hedges"
).split("; ")
TITLE_HEADS = (
    "Silver Hollow Crimson Quiet Broken Distant Golden Frozen Hidden Burning Paper Velvet Northern Last "
    "Wandering Salt Glass Midnight Painted Iron Amber Borrowed Restless Seventh"
).split()
TITLE_TAILS = (
    "Harbour Orchard Lantern Meadow Crossing Winter Garden Mirror Staircase Compass Island Letter Choir "
    "River Window Market Shepherd Carnival Library Bridge Hunter Daughter Kingdom Tide"
).split()
PROFESSIONS = {  # who -> what they make
    "novelist": "novel", "painter": "painting", "composer": "opera", "playwright": "play",
    "film director": "film", "sculptor": "statue", "poet": "collection of poems",
}  # fmt: skip
SCHOLARS = ("botanist", "astronomer", "surgeon", "chemist", "geologist", "historian", "engineer")
SCHOOLS = ("College", "Institute", "Academy", "Conservatory")
FIRMS = ("Works", "and Sons", "Company", "Brothers", "Workshop")
HOBBIES = {  # as passages say it -> as questions do
    "kept bees": "was a beekeeper", "played the cello": "was a cellist",
    "collected maps": "hoarded old charts", "climbed mountains": "loved high summits",
    "bred roses": "grew flowers", "repaired clocks": "mended timepieces",
    "sailed alone": "took a small boat out to sea", "wrote letters to strangers": "had many pen friends",
    "studied moths": "caught night insects", "baked bread for the poor": "fed the hungry",
    "learned nine languages": "was a polyglot", "walked everywhere": "refused every carriage",
}  # fmt: skip
PRIZES = (
    "Argent Medal; Lantern Prize; Compass Award; Crown Fellowship; Halden Cross; Meridian Prize; Orchid "
    "Medal"
).split("; ")
