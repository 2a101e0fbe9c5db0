"""How AppWorld is shown to an agent."""

from __future__ import annotations

from agent_envs.core.profile import Profile, PromptSpec, Spec

NO_CODE = "#! no code:"
"""What reaches the environment when a reply holds no code: a comment that says why."""

_HOW = (
    "You do things for a person by writing Python. Your code runs in a shell that keeps its variables from "
    "step to step, and you see what it prints. The person's apps are reached by calls such as\n"
    "  apis.api_docs.show_app_descriptions()                       # which apps there are\n"
    "  apis.api_docs.show_api_descriptions(app_name='phone')       # what an app can do\n"
    "  apis.api_docs.show_api_doc(app_name='phone', api_name='login')  # what a call takes and gives\n"
    "  apis.supervisor.show_account_passwords()                    # the person's passwords\n"
    "Arguments are given by name. Lists come in pages (page_index from 0): look at all of them. Most apps "
    "want an access_token from their login. Names, e-mail addresses and how people are related stand in the "
    "phone's contacts. Change nothing that was not asked for. When all is done, call "
    "apis.supervisor.complete_task(); where a question was asked, "
    "apis.supervisor.complete_task(answer=...), with the bare answer.\n"
)
_NEXT = (
    "Write the next piece of code between <code> and </code>, one piece only; print what you need to see. "
    "You may think first, inside <think> </think>."
)

PROFILE = Profile(
    prompt=PromptSpec(
        first=_HOW + "{observation}\nThe task: {task}\n" + _NEXT,
        later=(
            _HOW
            + "The task: {task}\nYou have run {step_count} piece(s) of code. The last {history_length}:\n"
            "{omitted}{history}\nThe last output:\n{observation}\n" + _NEXT
        ),
        turn="Before step {step}:\n{observation}\nCode {step}:\n{action}",
    ),
    parser=Spec("code", {"on_multiple": "invalid"}),
    memory=Spec("window", {"size": 8}),
    invalid_action=NO_CODE + " {reason}",
    has_expert=True,
)
