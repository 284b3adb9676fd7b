"""Questions and passages in scripts that write no blanks between words: 200 Chinese pairs, 30 Japanese, 30 Thai."""

from __future__ import annotations

from foils.data import Collection

CHINESE_THINGS = [
    "杭州",
    "成都",
    "青岛",
    "西安",
    "桂林",
    "敦煌",
    "拉萨",
    "厦门",
    "哈尔滨",
    "景德镇",
    "茉莉花茶",
    "普洱茶",
    "大熊猫",
    "金丝猴",
    "长江三峡",
    "黄山",
    "故宫",
    "龙门石窟",
    "京杭大运河",
    "清明上河图",
]
CHINESE = (
    ("{}最早在什么时候有文字记载？", "现存的史料中，关于{}的文字可以追溯到一千多年以前，地方志里有详细的叙述。"),
    ("去看{}哪个季节最合适？", "春末和初秋气候温和，游客认为这是欣赏{}的好时节，盛夏则过于炎热。"),
    ("{}面临哪些环境保护的问题？", "污染、过度开发和气候变化威胁着{}，当地政府制定了生态修复的计划。"),
    ("为什么外国人也喜欢{}？", "越来越多的海外朋友被{}吸引，他们称赞它独特的文化魅力和历史价值。"),
    ("介绍{}的书有哪些？", "图书馆收藏了多种关于{}的专著，其中一部画册印刷精美，作者是著名学者。"),
    ("{}每年带来多少收入？", "去年的经济报告显示，{}相关的产业创造了数十亿元的利润，并且仍在增长。"),
    ("孩子怎样学习{}的知识？", "小学课本用插图和故事讲解{}，老师还会组织课堂讨论和手工活动。"),
    ("{}有什么民间传说？", "老人们常说起一位仙女与{}的神话，这个故事代代口耳相传。"),
    ("摄影师拍{}要注意什么？", "清晨的光线柔和，用三脚架和广角镜头拍出来的{}层次分明，构图要留白。"),
    ("科学家研究{}得到了哪些发现？", "一支考察队利用卫星和化学分析对{}进行了多年测量，论文发表在国际期刊上。"),
)
JAPANESE_THINGS = ["京都", "札幌", "富士山", "抹茶", "相撲", "歌舞伎", "温泉", "新幹線", "折り紙", "桜"]
JAPANESE = (
    (
        "{}の歴史はいつ始まりましたか",
        "古い文書によれば、{}は何百年も前から人々に知られ、時代とともに姿を変えてきた歴史がある。",
    ),
    (
        "子どもに{}を教えるにはどうすればいいですか",
        "先生は絵本や動画を使い、{}の楽しさを子どもに分かりやすく教える工夫をしている。",
    ),
    ("{}の写真を撮るのに良い時間は", "朝早くは光がやわらかく、{}の写真を撮るのに最も良い時間だと写真家は言う。"),
)
THAI_THINGS = ["เชียงใหม่", "ภูเก็ต", "อยุธยา", "มวยไทย", "ข้าวเหนียว", "ช้างป่า", "ผ้าไหม", "ต้มยำกุ้ง", "ตลาดน้ำ", "ลอยกระทง"]
THAI = (
    ("ประวัติศาสตร์ของ{}เริ่มต้นเมื่อไร", "เอกสารโบราณกล่าวถึงประวัติศาสตร์อันยาวนานของ{}ซึ่งเริ่มต้นหลายร้อยปีก่อน"),
    ("เด็กจะเรียนรู้เรื่อง{}ได้อย่างไร", "ครูใช้ภาพและนิทานสอนให้เด็กเรียนรู้และสนุกกับ{}ในห้องเรียน"),
    ("เวลาไหนเหมาะสำหรับถ่ายภาพ{}", "แสงยามเช้านุ่มนวลจึงเป็นเวลาที่ช่างภาพนิยมถ่ายภาพ{}มากที่สุด"),
)
ALL = {"Chinese": (CHINESE_THINGS, CHINESE), "Japanese": (JAPANESE_THINGS, JAPANESE), "Thai": (THAI_THINGS, THAI)}


def unbroken_pairs(language: str) -> Collection:
    """Return the collection of a language: each question is about one thing, and one passage answers it."""
    things, forms = ALL[language]
    pairs = [(question.format(thing), passage.format(thing)) for thing in things for question, passage in forms]
    documents = {f"d{at}": passage for at, (_, passage) in enumerate(pairs)}
    queries = {f"q{at}": question for at, (question, _) in enumerate(pairs)}
    judged = {f"q{at}": {f"d{at}": 1} for at in range(len(pairs))}
    return Collection.from_dicts(language, documents, queries, {"train": judged, "test": judged})
