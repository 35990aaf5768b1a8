"""Short stories with one sensible ending, in the format of HellaSwag (Zellers et al., 2019, arXiv:1905.07830).

A doc is ``{"query": str, "choices": [str] * 4, "gold": int}``, as lm-evaluation-harness's HellaSwag has it
after `process_docs`.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import TypedDict

from starter_model.draws import stream


NAMES = {
    "She": ["Anna", "Clara", "Emma", "Julia", "Laura", "Maria", "Nina", "Sara", "Lucy", "Ruth", "Alice", "Helen"],
    "He": ["Tom", "Paul", "Peter", "John", "Mark", "Simon", "David", "Oscar", "Felix", "Henry", "Jack", "Leo"],
}
TESTS_PER_SCENE = 5


class ContinuationDoc(TypedDict):
    query: str
    choices: list[str]
    gold: int


@dataclass(frozen=True, slots=True)
class Scene:
    """A situation told in three ways, looked at in three ways, and three endings that make sense of it."""

    openings: tuple[str, ...]
    details: tuple[str, ...]
    endings: tuple[str, ...]

    def stories(self) -> list[tuple[str, str, str]]:
        """All (opening, detail, ending)."""
        return list(itertools.product(self.openings, self.details, self.endings))


#: One scene a block: openings, details and endings each on a line, parted by bars.
SCENES = """
is very thirsty | wants something to drink | has a dry mouth after the long run
goes to the kitchen | takes a clean glass | stands at the tap
drinks a glass of cold water. | fills a cup with water and drinks it all. | drinks.

is very hungry | has not eaten all day | wants some lunch
looks into the fridge | lays the table | finds some bread and cheese
makes a sandwich and eats it. | cooks a pot of soup and eats two plates. | eats.

is very tired | has worked until late at night | cannot keep awake
puts on pyjamas | turns off the light | walks to the bedroom
goes to bed. | lies down under the blanket and falls asleep. | sleeps until the morning.

sees dark clouds | hears the rain on the roof | must walk home in the rain
does not want to get wet | looks for the boots | steps out of the door
opens an umbrella. | puts on a raincoat and runs home. | holds a big umbrella over the bags.

is cold | feels the icy wind | is freezing on the way to school
begins to shiver | has red hands | stops in the snow
puts on a warm coat. | pulls a hat over both ears. | puts on gloves and a thick scarf.

writes a letter to a friend | has finished a long letter | wants to send a card
folds the paper | finds an envelope | writes the address
puts a stamp on it. | takes it to the post office. | drops it into the letter box at the corner.

has lost the key | cannot find the key | stands before a locked door without a key
empties all pockets | thinks hard | is worried
looks for the key under the mat. | searches the whole house for it. | calls a man who opens locks.

has a birthday | is ten years old today | has a birthday party
looks at the cake | sees the candles | smiles at all the guests
blows out the candles. | unwraps the presents one by one. | makes a wish and cuts the cake.

sees that the flowers are dry | loves the roses in the garden | has not cared for the plants
goes into the garden | looks at the brown leaves | picks up the can
waters the flowers. | gives every plant some fresh water. | pulls out the weeds between the roses.

sees a pile of dirty plates | has to clean up after dinner | finds the sink full of dishes
rolls up both sleeves | takes a sponge | turns on the hot tap
washes the plates. | dries every dish and puts it away. | scrubs the pans with soap until they shine.

has a dog that wants to go out | hears the dog bark at the door | takes care of a young dog
looks for the lead | opens the gate | takes a ball along
walks the dog in the park. | throws a stick and the dog brings it back. | lets the dog run.

has a bicycle with a flat tyre | rides over a nail | hears the air leave the tyre
gets off the bicycle | turns the bicycle upside down | fetches the tools
mends the hole in the tyre. | pumps up the tyre. | pushes the bicycle to the workshop.

enters a dark room | cannot see a thing in the cellar | wakes up in the dark
feels along the wall | is a little afraid | reaches out a hand
turns on the lamp. | lights a candle. | finds the switch and the room grows bright.

goes fishing | sits in a boat on the lake | wants to catch a fish
puts a worm on the hook | holds the rod | looks at the still water
throws the line into the lake. | waits for a bite. | pulls a big trout out of the water.

paints a picture | stands before a white canvas | takes art lessons
opens the box of colours | picks a brush | mixes red and blue
dips the brush in the paint. | paints a house and a tree. | hangs the picture up to dry.

has an exam tomorrow | must pass a hard test | is afraid of the exam
sits down at the desk | opens the books | takes some notes
studies until late. | learns the whole chapter by heart. | reads all the notes once more.

waits for the train | arrives at the station | has missed the train
stands on the platform | buys a ticket | looks at the clock
gets on the next train. | finds a seat in the train by the window. | asks when the next train leaves.

has cut a finger | falls and hurts one knee | is bleeding a little
cleans the cut | opens the first aid box | bites back the tears
puts a plaster on the wound. | wraps a bandage around it. | asks the nurse for a plaster.

finds the room far too hot | sits in the summer heat | cannot bear the heat indoors
wipes the sweat away | feels a bit dizzy | gets up from the chair
opens the window. | turns on the fan. | lets some cool air in through the window.

hears the baby cry | looks after a baby | has a baby that cannot sleep
goes to the cradle | lifts the baby up | warms some milk
sings a soft song. | feeds the baby. | rocks the baby gently until it is calm.

has a dirty car | drives home on a muddy road | wants the car to shine
fetches a bucket | gets the hose | parks in the yard
washes the car. | rubs the windows of the car with soap. | polishes the doors of the car.

has very long hair | wants short hair | needs a new haircut
goes to the barber | sits down before the mirror | makes an appointment
gets a haircut. | lets the barber cut off ten centimetres. | pays the barber for the haircut.

has a bad toothache | has a hole in a tooth | feels pain when chewing
holds one cheek | cannot eat at all | calls for help
goes to the dentist. | lets the dentist fill the tooth. | opens wide for the dentist.

sees fresh snow | plays outside on a winter day | is happy that it has snowed
puts on thick gloves | calls the other children | runs out of the house
builds a snowman. | throws snowballs. | rides down the hill on a sledge.

has borrowed a book | loves to read stories | is in the library
finds a quiet corner | looks at the cover | sits down in the armchair
reads the first page. | reads the book to the end. | gives the book back to the librarian.

plays in a football match | is on the football team | runs over the football field
gets the ball | sees the empty goal | hears the crowd cheer
kicks the ball into the goal. | scores. | passes the ball to another player.

plays the piano | gives a concert tonight | has a music lesson
opens the sheet music | sits down on the stool | bows to the audience
plays a slow song on the piano. | practises the scales. | plays.

needs milk from the shop | goes shopping | is in the supermarket
fills the basket | reads the shopping list | goes to the till
pays for the milk. | puts the food into a bag. | counts the change and leaves the shop.

wants to bake bread | mixes flour and yeast | has made some dough
heats the oven | kneads for a long time | greases the tin
puts the dough in the oven. | bakes the bread. | lets the loaf cool and slices it.

camps in the woods | wants a fire at the camp | has gathered dry wood
piles up the sticks | clears a place | sits down by the tent
lights the fire with a match. | roasts sausages over the flames. | warms both hands at the fire.
"""


def scenes() -> tuple[Scene, ...]:
    blocks = (block.splitlines() for block in SCENES.strip().split("\n\n"))
    return tuple(Scene(*(tuple(line.split(" | ")) for line in block)) for block in blocks)


def held_out(seed: int) -> list[tuple[Scene, frozenset[tuple[str, str, str]]]]:
    """Each scene with the combinations that only the test tells."""
    rng = stream(seed, "held out stories")
    return [(scene, frozenset(rng.sample(scene.stories(), TESTS_PER_SCENE))) for scene in scenes()]


def beginning(opening: str, detail: str, rng: random.Random) -> str:
    """The story up to its ending, told of a drawn person."""
    pronoun = rng.choice(list(NAMES))
    return f"{rng.choice(NAMES[pronoun])} {opening}. {pronoun} {detail}. {pronoun}"


def trained(seed: int) -> list[tuple[str, str, str]]:
    """The combinations that the test does not tell."""
    return [story for scene, tests in held_out(seed) for story in scene.stories() if story not in tests]


def continuation_docs(seed: int) -> list[ContinuationDoc]:
    """The held-out stories, each with the endings of three other scenes as wrong choices."""
    rng = stream(seed, "continuations")
    tests = held_out(seed)
    docs = []
    for scene, stories in tests:
        others = [other for other, _ in tests if other is not scene]
        for opening, detail, ending in sorted(stories):
            choices = [ending, *(rng.choice(other.endings) for other in rng.sample(others, 3))]
            rng.shuffle(choices)
            docs.append(
                ContinuationDoc(query=beginning(opening, detail, rng), choices=choices, gold=choices.index(ending))
            )
    return docs
