"""Plain true facts over several subjects, each with three ways to ask for it and two to state it.

A subject is a table; `subjects()` turns it into values.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """One answer, the questions that ask for it, the beginnings of sentences that end with it."""

    questions: tuple[str, ...]
    statements: tuple[str, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Subject:
    """The facts of one subject."""

    name: str
    facts: tuple[Fact, ...]

    def answers(self) -> tuple[str, ...]:
        """Every different answer, in the order of the table."""
        return tuple(dict.fromkeys(fact.answer for fact in self.facts))


CAPITALS = """
France Paris, Germany Berlin, Italy Rome, Spain Madrid, Portugal Lisbon, Austria Vienna, Greece Athens,
Poland Warsaw, Norway Oslo, Sweden Stockholm, Finland Helsinki, Denmark Copenhagen, Ireland Dublin,
Belgium Brussels, Hungary Budapest, Romania Bucharest, Bulgaria Sofia, Serbia Belgrade, Croatia Zagreb,
Albania Tirana, Ukraine Kyiv, Belarus Minsk, Latvia Riga, Estonia Tallinn, Lithuania Vilnius, Russia Moscow,
Turkey Ankara, Egypt Cairo, Libya Tripoli, Tunisia Tunis, Algeria Algiers, Morocco Rabat, Sudan Khartoum,
Kenya Nairobi, Uganda Kampala, Rwanda Kigali, Zambia Lusaka, Zimbabwe Harare, Angola Luanda, Ghana Accra,
Nigeria Abuja, Senegal Dakar, Mali Bamako, Niger Niamey, Somalia Mogadishu, Mozambique Maputo, Iran Tehran,
Iraq Baghdad, Syria Damascus, Jordan Amman, Lebanon Beirut, Qatar Doha, Oman Muscat, Bahrain Manama,
Afghanistan Kabul, Pakistan Islamabad, Nepal Kathmandu, Bangladesh Dhaka, China Beijing, Japan Tokyo,
Thailand Bangkok, Vietnam Hanoi, Philippines Manila, Canada Ottawa, Cuba Havana, Jamaica Kingston, Peru Lima,
Chile Santiago, Ecuador Quito, Colombia Bogota, Venezuela Caracas, Uruguay Montevideo, Brazil Brasilia,
Australia Canberra, Fiji Suva, Armenia Yerevan, Georgia Tbilisi, Azerbaijan Baku, Cyprus Nicosia,
Malta Valletta
"""

OPPOSITES = """
hot cold, big small, tall short, fast slow, wet dry, hard soft, light dark, full empty, high low, rich poor,
strong weak, happy sad, early late, open closed, clean dirty, loud quiet, thick thin, wide narrow, deep shallow,
near far, true false, new old, good bad, up down, first last, always never, day night, love hate, win lose,
buy sell, push pull, give take, laugh cry, begin end, remember forget, arrive leave, rise fall, above below,
before after, front back, top bottom, north south, east west, war peace, friend enemy, sharp blunt, sweet sour
"""

ANIMALS = {
    "mammal": "dog cat cow horse pig sheep goat lion tiger bear wolf fox deer mouse whale rabbit monkey",
    "bird": "eagle sparrow robin owl crow duck goose swan hen parrot penguin pigeon gull stork hawk ostrich swallow",
    "fish": "trout salmon shark tuna cod herring carp pike eel perch sardine haddock goldfish swordfish plaice"
    " ray sole",
    "insect": "ant bee wasp moth butterfly beetle cricket mosquito grasshopper termite dragonfly ladybird flea"
    " cockroach louse hornet earwig",
    "reptile": "snake lizard turtle crocodile alligator gecko iguana cobra python viper tortoise chameleon adder"
    " rattlesnake skink caiman terrapin",
}

ELEMENTS = """
hydrogen H, helium He, lithium Li, beryllium Be, nitrogen N, oxygen O, fluorine F, neon Ne, sodium Na,
magnesium Mg, aluminium Al, silicon Si, phosphorus P, sulfur S, chlorine Cl, argon Ar, potassium K, calcium Ca,
scandium Sc, titanium Ti, vanadium V, chromium Cr, manganese Mn, iron Fe, cobalt Co, nickel Ni, copper Cu,
zinc Zn, gallium Ga, germanium Ge, arsenic As, selenium Se, bromine Br, krypton Kr, rubidium Rb, strontium Sr,
yttrium Y, zirconium Zr, niobium Nb, molybdenum Mo, rhodium Rh, palladium Pd, silver Ag, cadmium Cd, indium In,
tin Sn, antimony Sb, iodine I, xenon Xe, caesium Cs, barium Ba, lanthanum La, cerium Ce, tantalum Ta, tungsten W,
osmium Os, iridium Ir, platinum Pt, gold Au, mercury Hg, thallium Tl, lead Pb, bismuth Bi, radon Rn, francium Fr,
radium Ra, thorium Th, uranium U, neptunium Np, plutonium Pu
"""

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
]
STEPS = {"right after": 1, "right before": -1, "two after": 2, "two before": -2}


def subjects() -> tuple[Subject, ...]:
    """The subjects that are learned by heart."""
    return (
        Subject("capitals", _capitals()),
        Subject("opposites", _opposites()),
        Subject("animals", _animals()),
        Subject("elements", _elements()),
        Subject("calendar", _calendar()),
    )


def _pairs(table: str) -> list[tuple[str, str]]:
    """'France Paris, Germany Berlin' -> [('France', 'Paris'), ('Germany', 'Berlin')]."""
    rows = (row.split() for row in table.split(","))
    return [(key, value) for key, value in rows]


def _capitals() -> tuple[Fact, ...]:
    return tuple(
        Fact(
            (
                f"What is the capital of {country}?",
                f"Which city is the capital of {country}?",
                f"{country} has which capital?",
            ),
            (f"The capital of {country} is", f"The government of {country} sits in"),
            city,
        )
        for country, city in _pairs(CAPITALS)
    )


def _opposites() -> tuple[Fact, ...]:
    return tuple(
        Fact(
            (
                f"What is the opposite of {word}?",
                f"Which word means the opposite of {word}?",
                f"Which word is not {word} at all?",
            ),
            (f"The opposite of {word} is", f"Turn {word} around and you get"),
            other,
        )
        for pair in _pairs(OPPOSITES)
        for word, other in (pair, pair[::-1])
    )


def _animals() -> tuple[Fact, ...]:
    """The kinds take turns, so that any few facts in a row hold several kinds."""
    columns = [[(animal, kind) for animal in animals.split()] for kind, animals in ANIMALS.items()]
    return tuple(
        Fact(
            (
                f"What kind of animal is the {animal}?",
                f"The {animal} is what kind of animal?",
                f"To which kind belongs the {animal}?",
            ),
            (f"The {animal} is a kind of", f"The {animal} belongs with every other"),
            kind,
        )
        for row in zip(*columns, strict=True)
        for animal, kind in row
    )


def _elements() -> tuple[Fact, ...]:
    return tuple(
        Fact(
            (
                f"What is the chemical symbol of {element}?",
                f"Which symbol stands for {element}?",
                f"How do chemists write {element}?",
            ),
            (f"The chemical symbol of {element} is", f"Chemists write {element} as"),
            symbol,
        )
        for element, symbol in _pairs(ELEMENTS)
    )


def _calendar() -> tuple[Fact, ...]:
    """Neighbours in the week and in the year, and the order of the months."""
    neighbours = [
        (f"{unit} comes {where} {name}", names[(index + step) % len(names)])
        for unit, names in (("month", MONTHS), ("day", DAYS))
        for where, step in STEPS.items()
        for index, name in enumerate(names)
    ]
    orders = [(f"month is the {ordinal} of the year", month) for ordinal, month in zip(ORDINALS, MONTHS, strict=True)]
    return tuple(
        Fact(
            (f"Which {clause}?", f"In the calendar, which {clause}?", f"Say which {clause}?"),
            (f"The {clause}:", f"Remember the {clause}:"),
            answer,
        )
        for clause, answer in neighbours + orders
    )
